import os

from airflow.sdk import DAG

from trainyard.operators import EvaluateOperator, ExportOperator, TrainOperator

with DAG("mnist", schedule=None):
    data = ExportOperator(
        task_id="export",
        prepare="mnist.prepare:table",
        source=os.environ["PEERS_SOURCE"],
        dataset="mnist/dataset",
        splits="fold",
        shapes={"image": [int(os.environ["PEERS_VALUES"])]},
    )
    model = TrainOperator(
        task_id="train",
        recipe="mnist.recipe:convnet",
        dataset=data.output,
        model="mnist/model",
        workers=2,
        epochs=int(os.environ["PEERS_EPOCHS"]),
        batch_size=2 * int(os.environ["PEERS_BATCH"]),
    )
    EvaluateOperator(task_id="evaluate", model=model.output, dataset=data.output, split="test", metrics=["accuracy"])
