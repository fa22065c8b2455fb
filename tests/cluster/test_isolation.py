"""Where containers really run, and with how much of a node, where YARN does not count GPUs.

Where it does, the pipeline's own tests see to it.
"""

from __future__ import annotations

import pytest

from stack.hadoop.cluster import Cluster
from stack.hadoop.containers import Container, Watch
from tests.cluster.jobs import Exports, finished
from trainyard.planning.placement import Placement

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(900)]

SLOW = """
    import time

    def rows(spark, source):
        spark.sparkContext.parallelize(range(2), 2).foreach(lambda _: time.sleep(8))
        return spark.range(500)
"""


def executors(exports: Exports, cluster: Cluster, placement: Placement) -> list[Container]:
    plan = exports.plan(SLOW, placement=placement, conf={"spark.executor.instances": "2"})
    with Watch(cluster) as watch:
        assert finished(plan).status == "succeeded"
    found = [c for c in watch.containers if c.application == plan.name and not c.driver]
    assert len(found) == 2
    return found


def test_labels_alone_choose_the_nodes(exports: Exports, cluster: Cluster) -> None:
    chosen = Placement(queue="train", node_label="gpu", gpus_per_worker=1, isolation="labels")
    assert {(c.label, c.gpus) for c in executors(exports, cluster, chosen)} == {("gpu", 0)}


def test_a_whole_node_leaves_room_for_nothing_else(exports: Exports, cluster: Cluster) -> None:
    chosen = Placement(queue="train", node_label="gpu", gpus_per_worker=2, isolation="whole_node")
    found = executors(exports, cluster, chosen)
    assert {(c.label, c.megabytes, c.gpus) for c in found} == {("gpu", 6144, 0)}
    assert len({c.node for c in found}) == 2
