"""Clusters and plans made up for tests of what is decided by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainyard.connections import SparkConnection
from trainyard.contract.spec import Place
from trainyard.placement import Placement
from trainyard.plan import Job, Plan, Runtime, make
from trainyard.sizing import Memory
from trainyard.yarn.survey import Node, Queue, Resources, Survey

NODE = Resources(memory=6144, cores=4, gpus=2)
ALL = Resources(memory=1 << 20, cores=1 << 10, gpus=1 << 10)


def queue(name: str, *labels: str, **fields: Any) -> Queue:
    most = dict.fromkeys(("", *labels), ALL)
    leaf = Queue(name, f"root.{name}", True, True, frozenset(labels), "", Resources(6144, 4, 4), most, {}, {}, ("*",))
    return replace(leaf, **fields)


def node(id: str, partition: str = "gpu", total: Resources = NODE, free: Resources | None = None) -> Node:
    return Node(id, partition, total, total if free is None else free)


def survey(**fields: Any) -> Survey:
    """One ordinary node and two of partition gpu; queues etl, and train that may use the label."""
    ordinary = node("n1", "", Resources(6144, 4))
    nodes = (ordinary, node("g1"), node("g2"))
    made = Survey("ada", nodes, frozenset({"gpu"}), (queue("etl"), queue("train", "gpu")), 256)
    return replace(made, **fields)


def gang(
    workers: int = 2, memory: str = "512m", native: str = "2g", least: int | None = None, **placement: Any
) -> Plan:
    chosen = {"queue": "train", "node_label": "gpu", "gpus_per_worker": 1} | placement
    job = Job(
        operator="TrainOperator 'train'", storage="file:///s", spec={}, workers=workers, least_workers=least,
        memory=Memory(heap=memory, native=native),
        place=Place(dag_id="toy", run_id="r1", task_id="train", directory="file:///s/runs/toy/r1"),
        placement=Placement(**chosen),
    )  # fmt: skip
    spark = SparkConnection("spark_default", "yarn", deploy_mode="cluster")
    return make(job, spark, Runtime("/p/driver.py", (), {"PYSPARK_PYTHON": "/venv/python"}))
