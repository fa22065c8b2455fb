"""Classify sentences of the Python Language Reference by chapter, in batches of similar length."""

from airflow.sdk import DAG, task

from trainyard.hooks import TrainyardHook
from trainyard.operators import EvaluateOperator, ExportOperator, TrainOperator

CHAPTERS = ["compound", "debugger", "specialnames", "string-methods", "types"]
VOCABULARY = 4096

with DAG("sequences", schedule=None, doc_md=__doc__):

    @task
    def text() -> str:
        from sequences.source import write

        return write(TrainyardHook().path("sequences/source"), CHAPTERS)

    export = ExportOperator(
        task_id="export",
        prepare="sequences.prepare:words",
        prepare_params={"chapters": CHAPTERS, "vocabulary": VOCABULARY},
        source=text(),
        format="json",
        dataset="sequences/dataset",
        variable_length=["words"],
        splits={"train": 0.7, "validation": 0.1, "test": 0.2},
        stratify="label",
    )
    train = TrainOperator(
        task_id="train",
        recipe="sequences.recipe:bag_of_words",
        recipe_params={"vocabulary": VOCABULARY, "classes": len(CHAPTERS)},
        dataset=export.output,
        model="sequences/model",
        epochs=8,
        batch_size=32,
        bucket_by="words",
        monitor="accuracy",
        monitor_mode="max",
    )
    EvaluateOperator(
        task_id="evaluate", model=train.output, dataset=export.output, metrics=["accuracy", "confusion_matrix"]
    )
