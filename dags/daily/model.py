"""Train on from the champion whenever the dataset has a new day; promote a better model, and predict with the champion.

Scheduled by the asset `daily/dataset`, which the DAG `daily` updates.
"""

from airflow.sdk import DAG, Asset, task

from trainyard.hooks import TrainyardHook
from trainyard.operators import EvaluateOperator, PredictOperator, PromoteOperator, TrainOperator
from trainyard.schemas import model_artifact

with DAG("daily_model", schedule=[Asset("daily/dataset")], max_active_runs=1, doc_md=__doc__):

    @task
    def champion() -> str | None:
        uri = TrainyardHook().path("daily/champion")
        return uri if model_artifact.exists(uri) else None

    train = TrainOperator(
        task_id="train",
        recipe="daily.recipe:network",
        recipe_params={"start_from": champion()},
        dataset="daily/dataset",
        model="daily/model",
        epochs=15,
        batch_size=32,
        monitor="accuracy",
        monitor_mode="max",
    )
    evaluate = EvaluateOperator(
        task_id="evaluate",
        model=train.output,
        baselines="daily/champion",
        dataset="daily/dataset",
        dataset_version="{{ ti.xcom_pull('train')['dataset_version'] }}",
        metrics=["accuracy"],
        slices=["day"],
    )
    promote = PromoteOperator(
        task_id="promote",
        evaluation=evaluate.output,
        champion="daily/champion",
        metric="accuracy",
        confident=False,
        required={"accuracy": 0.7},
    )
    promote >> PredictOperator(
        task_id="predict",
        model="daily/champion",
        source="daily/source",
        prepare="daily.prepare:digits",
        keys=["number"],
        output="daily/predictions",
        partition_by="day",
        trigger_rule="none_failed",  # where the champion stays, it predicts the new day
    )
