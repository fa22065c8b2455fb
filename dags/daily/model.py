"""Train on from the champion whenever the dataset has a new day; promote a better model, and predict with the champion.

Scheduled by the asset `daily/dataset`, which the DAG `daily` updates.
"""

from airflow.sdk import DAG, Asset

from trainyard.operators import EvaluateOperator, PredictOperator, PromoteOperator, TrainOperator

with DAG("daily_model", schedule=[Asset("daily/dataset")], max_active_runs=1, doc_md=__doc__):
    train = TrainOperator(
        task_id="train",
        recipe="daily.recipe:network",
        start_from="daily/champion",  # from scratch, while there is none
        dataset="daily/dataset",
        model="daily/model",
        epochs=15,
        batch_size=32,
        monitor="accuracy",
    )
    evaluate = EvaluateOperator(
        task_id="evaluate",
        model=train.output,
        baselines="daily/champion",
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
