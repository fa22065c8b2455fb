import os
from datetime import timedelta

from airflow.sdk import DAG

from trainyard.operators import EvaluateOperator, ExportOperator, Memory, Placement, TrainOperator

RETRIES = {"retries": 2, "retry_delay": timedelta(seconds=1)}

with DAG("mnist_yarn", schedule=None, default_args=RETRIES):
    data = ExportOperator(
        task_id="export",
        prepare="mnist.prepare:table",
        source=f"file://{os.environ['PEERS_SOURCE']}",
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
        memory=Memory(heap="512m", native="1g"),
        placement=Placement(queue="train", node_label=os.environ.get("PEERS_NODE_LABEL", "gpu")),
    )
    EvaluateOperator(task_id="evaluate", model=model.output, dataset=data.output, split="test", metrics=["accuracy"])
