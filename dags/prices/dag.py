"""Predict the prices of computers in later months from two tables, with strings as categories."""

from pathlib import Path

from airflow.sdk import DAG

from trainyard.operators import EvaluateOperator, ExportOperator, TrainOperator

HERE = Path(__file__).parent
AS_CSV = {"header": True, "inferSchema": True}

with DAG("prices", schedule=None, doc_md=__doc__):
    export = ExportOperator(
        task_id="export",
        prepare="prices.prepare:join",
        sources={
            "computers": {"path": (HERE / "computers.csv").as_uri(), "options": AS_CSV},
            "months": {"path": (HERE / "months.csv").as_uri(), "options": AS_CSV},
        },
        dataset="prices/dataset",
        categories=["brand", "cd", "speakers", "screen"],
        split_by="month",
        splits={"validation": "1995-04-01", "test": "1995-07-01"},
        expect={"id": {"unique": True}, "price": {"min": 100, "max": 10_000}},
    )
    train = TrainOperator(
        task_id="train", recipe="prices.recipe:network", dataset=export.output, model="prices/model", epochs=30
    )
    EvaluateOperator(task_id="evaluate", model=train.output, dataset=export.output, slices=["brand", "cd"])
