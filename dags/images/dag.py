"""Classify tiles of two photographs: JPEG files that the workers decode."""

from airflow.sdk import DAG, task

from trainyard.hooks import TrainyardHook
from trainyard.operators import EvaluateOperator, ExportOperator, TrainOperator

with DAG("images", schedule=None, doc_md=__doc__):

    @task
    def tiles() -> str:
        from images.source import write

        return write(TrainyardHook().path("images/source"))

    export = ExportOperator(
        task_id="export",
        prepare="images.prepare:files",
        source=tiles(),
        format="binaryFile",
        options={"recursiveFileLookup": True},
        dataset="images/dataset",
        splits={"train": 0.6, "validation": 0.1, "test": 0.3},
        label="photograph",
        stratify="photograph",
    )
    train = TrainOperator(
        task_id="train",
        recipe="images.recipe:convnet",
        dataset=export.output,
        model="images/model",
        epochs=10,
        batch_size=32,
        monitor="accuracy",
        monitor_mode="max",
    )
    EvaluateOperator(
        task_id="evaluate", model=train.output, dataset=export.output, metrics=["accuracy", "auroc", "confusion_matrix"]
    )
