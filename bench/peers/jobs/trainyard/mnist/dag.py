import os

from airflow.sdk import DAG

from trainyard.operators import EvaluateOperator, ExportOperator, TrainOperator

with DAG("mnist", schedule=None):
    data = ExportOperator(
        task_id="export",
        prepare="mnist.prepare:table",
        source=os.environ["PEERS_SOURCE"],
        dataset="mnist/dataset",
        split_column="fold",
        shapes={"image": [784]},
    )
    model = TrainOperator(
        task_id="train",
        recipe="mnist.recipe:convnet",
        dataset=data.output,
        model="mnist/model",
        workers=2,
        epochs=5,
        batch_size=128,
    )
    EvaluateOperator(task_id="evaluate", model=model.output, dataset=data.output, split="test", metrics=["accuracy"])
