"""Clusters and plans made up for tests of what is decided by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainyard.planning.connection import SparkConnection
from trainyard.planning.job import Job, Runtime
from trainyard.planning.placement import Placement
from trainyard.planning.plan import Plan, build_plan
from trainyard.planning.sizing import Memory
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.yarn.snapshot import ClusterSnapshot, Node, Queue, Resources

NODE = Resources(memory=6144, cores=4, gpus=2)
ALL = Resources(memory=1 << 20, cores=1 << 10, gpus=1 << 10)


def queue(name: str, *labels: str, **fields: Any) -> Queue:
    most = dict.fromkeys(("", *labels), ALL)
    leaf = Queue(name, f"root.{name}", True, True, frozenset(labels), "", Resources(6144, 4, 4), most, {}, {}, ("*",))
    return replace(leaf, **fields)


def node(id: str, partition: str = "gpu", total: Resources = NODE, free: Resources | None = None) -> Node:
    return Node(id, partition, total, total if free is None else free)


def snapshot(**fields: Any) -> ClusterSnapshot:
    """One ordinary node and two of partition gpu; queues etl, and train that may use the label."""
    ordinary = node("n1", "", Resources(6144, 4))
    nodes = (ordinary, node("g1"), node("g2"))
    made = ClusterSnapshot("ada", nodes, frozenset({"gpu"}), (queue("etl"), queue("train", "gpu")), 256)
    return replace(made, **fields)


def group_plan(
    workers: int = 2, memory: str = "512m", native: str = "2g", least: int | None = None, **placement: Any
) -> Plan:
    chosen = {"queue": "train", "node_label": "gpu", "gpus_per_worker": 1} | placement
    job = Job(
        operator="TrainOperator 'train'", storage="file:///s", spec={}, workers=workers, min_workers=least,
        memory=Memory(heap=memory, native=native),
        task_key=TaskKey(dag_id="toy", run_id="r1", task_id="train", directory="file:///s/runs/toy/r1"),
        placement=Placement(**chosen),
    )  # fmt: skip
    spark = SparkConnection("spark_default", "yarn", deploy_mode="cluster")
    return build_plan(job, spark, Runtime("/p/driver.py", (), {"PYSPARK_PYTHON": "/venv/python"}))
