"""Train a classifier on image files of handwritten digits, and predict with it."""

from airflow.sdk import DAG, Param, task

from trainyard.hooks import TrainyardHook
from trainyard.operators import (
    EvaluateOperator,
    ExportOperator,
    Placement,
    PredictOperator,
    PromoteOperator,
    TrainOperator,
)

PARAMS = {
    "epochs": Param(8, type="integer", minimum=1, description="passes over the training rows"),
    "batch_size": Param(64, type="integer", minimum=1, description="rows of a batch, over all workers"),
    "workers": Param(2, type="integer", minimum=1, description="workers of the group"),
    "strategy": Param("allreduce", enum=["allreduce", "averaging", "threshold", "diloco", "fsdp"]),
    "learning_rate": Param(0.003, type="number", exclusiveMinimum=0),
    "width": Param(32, type="integer", minimum=1, description="channels of the first layer"),
}

with DAG("digits", schedule=None, params=PARAMS, doc_md=__doc__):

    @task
    def images() -> str:
        from digits.source import write

        return write(TrainyardHook().path("digits/source"))

    source = images()
    export = ExportOperator(
        task_id="export",
        prepare="digits.prepare:images",
        source=source,
        format="binaryFile",
        options={"recursiveFileLookup": True},
        dataset="digits/dataset",
        splits={"train": 0.8, "validation": 0.1, "test": 0.1},
        shapes={"image": [1, 8, 8]},
        rows_per_batch=256,
    )
    train = TrainOperator(
        task_id="train",
        recipe="digits.recipe:convnet",
        dataset=export.output,
        model="digits/model",
        recipe_params={"learning_rate": "{{ params.learning_rate }}", "width": "{{ params.width }}"},
        workers="{{ params.workers }}",
        strategy="{{ params.strategy }}",
        epochs="{{ params.epochs }}",
        batch_size="{{ params.batch_size }}",
        placement=Placement(queue="train", node_label="gpu"),
        gpus_per_worker=1,
        monitor="accuracy",
        monitor_mode="max",
    )
    evaluate = EvaluateOperator(
        task_id="evaluate",
        model=train.output,
        baselines="digits/champion",
        dataset=export.output,
        split="test",
        metrics=["accuracy", "f1", "auroc", "calibration_error", "confusion_matrix"],
    )
    promote = PromoteOperator(
        task_id="promote",
        evaluation=evaluate.output,
        champion="digits/champion",
        metric="accuracy",
        margin=-0.01,
        required={"accuracy": 0.9},
        on_reject="fail",
    )
    promote >> PredictOperator(
        task_id="predict",
        model="digits/champion",
        source={"format": "binaryFile", "path": source, "options": {"recursiveFileLookup": True}},
        prepare="digits.prepare:images",
        keys=["id"],
        output="digits/predictions",
    )
