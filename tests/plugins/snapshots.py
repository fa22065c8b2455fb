"""Clusters and plans made up for tests of what is decided by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainyard.clusters.registry import find_cluster
from trainyard.planning.executors import Executors
from trainyard.planning.job import Job, Runtime, SparkConnection
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
    workers: int = 2,
    memory: str = "512m",
    native: str = "2g",
    least: int | None = None,
    cores_per_worker: int = 1,
    gpus_per_worker: int = 1,
    **placement: Any,
) -> Plan:
    chosen = {"queue": "train", "node_label": "gpu"} | placement
    return job_plan(
        "TrainOperator 'train'", workers=workers, min_workers=least, cores_per_worker=cores_per_worker,
        gpus=gpus_per_worker, memory=Memory(heap=memory, native=native), placement=Placement(**chosen),
    )  # fmt: skip


def stage_plan(executors: Executors, **fields: Any) -> Plan:
    return job_plan("ExportOperator 'export'", executors=executors, placement=Placement(queue="etl"), **fields)


def job_plan(operator: str, **fields: Any) -> Plan:
    task = operator.split("'")[1]
    key = TaskKey(dag_id="toy", run_id="r1", task_id=task, directory="file:///s/runs/toy/r1")
    job = Job(operator=operator, storage="file:///s", spec={}, task_key=key, **fields)
    spark = SparkConnection("spark_default", "yarn", deploy_mode="cluster")
    return build_plan(job, find_cluster(spark), Runtime("/p/driver.py", (), {"PYSPARK_PYTHON": "/venv/python"}))
