"""A pipeline whose storage each release leaves for the next ones."""

from airflow.sdk import DAG

from trainyard.operators import EvaluateOperator, ExportOperator, PredictOperator, PromoteOperator, TrainOperator

SOURCE = {"path": "stored/source/flowers.csv", "options": {"header": True, "inferSchema": True}}

with DAG("stored", schedule=None, doc_md=__doc__):
    export = ExportOperator(
        task_id="export", prepare="stored.prepare:flowers", source=SOURCE, dataset="stored/dataset",
        categories=["field"], label="kind", rows_per_batch=16, shards=2,
    )  # fmt: skip
    train = TrainOperator(
        task_id="train", recipe="stored.recipe:network", dataset=export.output, model="stored/model", epochs=4,
        batch_size=16, keep_checkpoints=2, checkpoint_minutes=0.0001,
    )  # fmt: skip
    evaluate = EvaluateOperator(
        task_id="evaluate", model=train.output, dataset=export.output, split="test", metrics=["accuracy"]
    )
    PromoteOperator(task_id="promote", evaluation=evaluate.output, champion="stored/champion", metric="accuracy")
    PredictOperator(
        task_id="predict", model=train.output, source=SOURCE, prepare="stored.prepare:flowers", keys=["id"],
        output="stored/predictions",
    )  # fmt: skip
