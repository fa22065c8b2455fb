"""Containers that operators request and YARN grants: their nodes, where YARN does not count GPUs, and their cores.

test_pipeline.py covers a YARN that counts GPUs.
"""

from __future__ import annotations

from typing import Any

import pytest

from stack.hadoop.cluster import Cluster
from stack.hadoop.containers import Container, ContainerWatch
from tests.cluster.jobs import Exports, run_to_end
from trainyard.planning.placement import Placement

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(900)]

SLOW = """
    import time

    def rows(spark, source):
        spark.sparkContext.parallelize(range(4), 4).foreach(lambda _: time.sleep(8))
        return spark.range(500)
"""


def run_and_list_executors(exports: Exports, cluster: Cluster, placement: Placement, **options: Any) -> list[Container]:
    plan = exports.plan(SLOW, placement=placement, executors=2, **options)
    with ContainerWatch(cluster) as watch:
        assert run_to_end(plan).status == "succeeded"
    executors = [c for c in watch.containers if c.application == plan.name and not c.driver]
    assert len(executors) == 2
    return executors


def test_labels_select_the_nodes_of_executors_with_several_cores(exports: Exports, cluster: Cluster) -> None:
    placement = Placement(queue="train", node_label="gpu", isolation="labels")
    executors = run_and_list_executors(exports, cluster, placement, cores_per_executor=2, gpus_per_executor=1)
    assert {(c.label, c.gpus, c.cores) for c in executors} == {("gpu", 0, 2)}


def test_a_whole_node_is_allocated_to_one_container(exports: Exports, cluster: Cluster) -> None:
    placement = Placement(queue="train", node_label="gpu", isolation="whole_node")
    executors = run_and_list_executors(exports, cluster, placement, gpus_per_executor=2)
    assert {(c.label, c.megabytes, c.gpus) for c in executors} == {("gpu", 6144, 0)}
    assert len({c.node for c in executors}) == 2
