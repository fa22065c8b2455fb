"""Forecast the sunspots of a year from the twelve years before it, with splits by time."""

from pathlib import Path

from airflow.sdk import DAG

from trainyard.operators import EvaluateOperator, ExportOperator, TrainOperator

with DAG("timeseries", schedule=None, doc_md=__doc__):
    export = ExportOperator(
        task_id="export",
        prepare="timeseries.prepare:windows",
        source=Path(__file__).with_name("sunspots.csv").as_uri(),
        options={"header": True, "inferSchema": True},
        dataset="timeseries/dataset",
        split_by="date",
        splits={"validation": "1920-01-01", "test": "1950-01-01"},
    )
    train = TrainOperator(
        task_id="train",
        recipe="timeseries.recipe:network",
        dataset=export.output,
        model="timeseries/model",
        epochs=60,
        batch_size=32,
        monitor="mae",
        early_stopping=20,
    )
    EvaluateOperator(task_id="evaluate", model=train.output, dataset=export.output, metrics=["mae", "rmse", "r2"])
