"""Train a regression of the body mass of Palmer penguins on a table."""

from pathlib import Path

from airflow.sdk import DAG

from trainyard.operators import EvaluateOperator, ExportOperator, PredictOperator, TrainOperator

SOURCE = {
    "path": Path(__file__).with_name("penguins.csv").as_uri(),
    "options": {"header": True, "inferSchema": True, "nullValue": "NA"},
}

with DAG("penguins", schedule=None, doc_md=__doc__):
    export = ExportOperator(
        task_id="export",
        prepare="penguins.prepare:table",
        source=SOURCE,
        dataset="penguins/dataset",
        splits={"train": 0.7, "validation": 0.15, "test": 0.15},
    )
    train = TrainOperator(
        task_id="train",
        recipe="penguins.recipe:network",
        dataset=export.output,
        model="penguins/model",
        epochs=40,
        batch_size=32,
        early_stopping=10,
    )
    EvaluateOperator(
        task_id="evaluate", model=train.output, dataset=export.output, split="test", metrics=["mae", "rmse", "r2"]
    )
    PredictOperator(
        task_id="predict",
        model=train.output,
        source=SOURCE,
        prepare="penguins.prepare:inputs",
        keys=["penguin"],
        output="penguins/predictions",
    )
