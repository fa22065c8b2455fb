"""Rank patients of one age by the progression of their diabetes, and measure the order."""

from airflow.sdk import DAG, task

from trainyard.hooks import TrainyardHook
from trainyard.operators import EvaluateOperator, ExportOperator, TrainOperator

with DAG("ranking", schedule=None, doc_md=__doc__):

    @task
    def patients() -> str:
        from ranking.source import write

        return write(TrainyardHook().path("ranking/patients.csv"))

    export = ExportOperator(
        task_id="export",
        prepare="ranking.prepare:patients",
        source=patients(),
        options={"header": True, "inferSchema": True},
        dataset="ranking/dataset",
        splits={"train": 0.5, "validation": 0.1, "test": 0.4},
        split_by="age",
    )
    train = TrainOperator(
        task_id="train",
        recipe="ranking.recipe:scorer",
        dataset=export.output,
        model="ranking/model",
        epochs=20,
        batch_size=64,
    )
    EvaluateOperator(
        task_id="evaluate",
        model=train.output,
        dataset=export.output,
        query="age",
        metrics=["ndcg", "ndcg@3", "mrr"],
    )
