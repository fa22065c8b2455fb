"""A DAG of which only one run at a time fits the cluster: its worker group takes three of four GPUs; and a long one."""

from datetime import timedelta

from airflow.sdk import DAG

from trainyard.operators import ExportOperator, TrainOperator
from trainyard.planning.placement import Placement
from trainyard.planning.sizing import Memory
from trainyard.sensors import CapacitySensor

RETRIES = {"retries": 2, "retry_delay": timedelta(seconds=1)}

with DAG("compete", schedule=None, max_active_runs=2, default_args=RETRIES, params={"source": ""}):
    export = ExportOperator(
        task_id="export",
        prepare="compete.prepare:rows",
        source="{{ params.source }}",
        format="json",
        dataset="compete/{{ run_id }}/dataset",
        shapes={"x": [4]},
        executors=1,
    )
    room = CapacitySensor(task_id="room", stage="train", poke_interval=3)
    train = TrainOperator(
        task_id="train",
        recipe="compete.recipe:linear",
        dataset=export.output,
        model="compete/model",
        workers=3,
        epochs=1,
        memory=Memory(heap="512m", native="1g"),
        placement=Placement(queue="train", node_label="gpu"),
        gpus_per_worker=1,
        pool="gpu",
        pool_slots=3,
    )
    export >> room >> train

with DAG("learn", schedule=None, params={"dataset": ""}):
    TrainOperator(
        task_id="train",
        recipe="compete.recipe:linear",
        dataset="{{ params.dataset }}",
        model="learn/model",
        workers=1,
        epochs=100_000,
        memory=Memory(heap="512m", native="1g"),
        placement=Placement(queue="train", node_label="gpu"),
    )
