"""Transfer a network trained on the digits 0 to 4 to the digits 5 to 9, of which only 50 are labeled."""

from airflow.sdk import DAG, task

from trainyard.hooks import TrainyardHook
from trainyard.operators import EvaluateOperator, ExportOperator, FeaturizeOperator, TrainOperator

KNOWN, NEW = [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]
CONVOLUTIONS = "4"
"""The layer after the last convolution."""

with DAG("transfer", schedule=None, doc_md=__doc__):

    @task
    def digits() -> str:
        from transfer.source import write

        return write(TrainyardHook().path("transfer/digits.parquet"))

    source = {"source": digits(), "prepare": "transfer.prepare:images"}
    image = {"shapes": {"image": [1, 28, 28]}}
    few = {"prepare_params": {"only": NEW}, "splits": {"train": 0.02, "test": 0.98}, "split_by": "id"}
    quick = {"epochs": 40, "batch_size": 8}
    metrics = ["accuracy", "log_loss"]

    known = ExportOperator(
        task_id="export_known",
        **source,
        **image,
        prepare_params={"only": KNOWN},
        splits={"train": 0.9, "validation": 0.1},
        dataset="transfer/known",
    )
    network = TrainOperator(
        task_id="train_known",
        recipe="transfer.recipe:convnet",
        recipe_params={"classes": 5},
        dataset=known.output,
        model="transfer/known-model",
        epochs=5,
    )

    new = ExportOperator(task_id="export_new", **source, **image, **few, dataset="transfer/new")
    scratch = TrainOperator(
        task_id="train_from_scratch",
        recipe="transfer.recipe:convnet",
        recipe_params={"classes": 5},
        dataset=new.output,
        model="transfer/scratch-model",
        **quick,
    )
    tuned = TrainOperator(
        task_id="fine_tune",
        recipe="transfer.recipe:convnet",
        recipe_params={"classes": 5, "reinitialize": ["7"], "freeze": ["0", "2"]},
        start_from=network.output,
        dataset=new.output,
        model="transfer/tuned-model",
        **quick,
    )
    EvaluateOperator(
        task_id="evaluate_fine_tuned",
        model=tuned.output,
        baselines=[scratch.output],
        dataset=new.output,
        metrics=metrics,
    )

    features = FeaturizeOperator(
        task_id="featurize_new",
        **source,
        **few,
        model=network.output,
        layer=CONVOLUTIONS,
        dataset="transfer/features",
    )
    head = TrainOperator(
        task_id="train_head",
        recipe="transfer.recipe:head",
        recipe_params={"size": 1568, "classes": 5},
        dataset=features.output,
        model="transfer/head-model",
        **quick,
    )
    EvaluateOperator(task_id="evaluate_head", model=head.output, dataset=features.output, metrics=metrics)
