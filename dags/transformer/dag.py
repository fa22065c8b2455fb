"""Train a small causal transformer to continue the text of the Python Language Reference, character by character."""

from airflow.sdk import DAG, task

from trainyard.hooks import TrainyardHook
from trainyard.operators import EvaluateOperator, ExportOperator, TrainOperator

CHAPTERS = ["compound", "debugger", "specialnames", "string-methods", "types"]
LENGTH = 64
"""The characters of a row."""

with DAG("transformer", schedule=None, doc_md=__doc__):

    @task
    def text() -> str:
        from sequences.source import write

        return write(TrainyardHook().path("transformer/source"), CHAPTERS)

    export = ExportOperator(
        task_id="export",
        prepare="transformer.prepare:windows",
        prepare_params={"length": LENGTH},
        source=text(),
        format="json",
        dataset="transformer/dataset",
        split_by="sentence",
    )
    train = TrainOperator(
        task_id="train",
        recipe="transformer.recipe:causal",
        recipe_params={"length": LENGTH},
        dataset=export.output,
        model="transformer/model",
        workers=2,
        epochs=6,
        batch_size=32,
        clip_norm=1.0,
        monitor="perplexity",
    )
    EvaluateOperator(
        task_id="evaluate", model=train.output, dataset=export.output, metrics=["transformer.recipe:perplexity"]
    )
