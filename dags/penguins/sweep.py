"""Compare learning rates whenever there is a new dataset of penguins; promote the best model if it beats the champion.

Scheduled by the asset `penguins/dataset`, which the DAG `penguins` updates.
"""

from airflow.sdk import DAG, Asset, Param, task

from trainyard.operators import EvaluateOperator, PromoteOperator, TrainOperator

with DAG(
    "penguins_sweep",
    schedule=[Asset("penguins/dataset")],
    max_active_runs=1,  # all runs write the same models
    params={"learning_rates": Param([0.002, 0.02, 0.2], type="array", items={"type": "number"})},
    doc_md=__doc__,
):

    @task
    def candidates(params: dict) -> list[dict]:
        return [{"learning_rate": rate} for rate in params["learning_rates"]]

    train = TrainOperator.partial(
        task_id="train",
        recipe="penguins.recipe:network",
        dataset="penguins/dataset",
        model="penguins/sweep/{{ ti.map_index }}",
        epochs=20,
        batch_size=32,
        monitor="mae",
        max_active_tis_per_dagrun=2,
    ).expand(recipe_params=candidates())
    evaluate = EvaluateOperator(
        task_id="evaluate",
        models=train.output,
        baselines="penguins/champion",
        dataset="penguins/dataset",
        split="test",
        metrics=["mae", "rmse"],
    )
    PromoteOperator(
        task_id="promote",
        evaluation=evaluate.output,
        champion="penguins/champion",
        metric="mae",
    )
