"""Placement of containers on nodes when YARN does not count GPUs; test_pipeline.py covers the other case."""

from __future__ import annotations

import pytest

from stack.hadoop.cluster import Cluster
from stack.hadoop.containers import Container, ContainerWatch
from tests.cluster.jobs import Exports, run_to_end
from trainyard.planning.placement import Placement

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(900)]

SLOW = """
    import time

    def rows(spark, source):
        spark.sparkContext.parallelize(range(2), 2).foreach(lambda _: time.sleep(8))
        return spark.range(500)
"""


def run_and_list_executors(exports: Exports, cluster: Cluster, placement: Placement) -> list[Container]:
    plan = exports.plan(SLOW, placement=placement, executors=2)
    with ContainerWatch(cluster) as watch:
        assert run_to_end(plan).status == "succeeded"
    executors = [c for c in watch.containers if c.application == plan.name and not c.driver]
    assert len(executors) == 2
    return executors


def test_labels_select_the_nodes(exports: Exports, cluster: Cluster) -> None:
    placement = Placement(queue="train", node_label="gpu", gpus_per_worker=1, isolation="labels")
    assert {(c.label, c.gpus) for c in run_and_list_executors(exports, cluster, placement)} == {("gpu", 0)}


def test_a_whole_node_is_allocated_to_one_container(exports: Exports, cluster: Cluster) -> None:
    placement = Placement(queue="train", node_label="gpu", gpus_per_worker=2, isolation="whole_node")
    executors = run_and_list_executors(exports, cluster, placement)
    assert {(c.label, c.megabytes, c.gpus) for c in executors} == {("gpu", 6144, 0)}
    assert len({c.node for c in executors}) == 2
