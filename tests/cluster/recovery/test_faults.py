"""An export during which a process is killed results in one complete dataset, written by one application.

Two of the faults; `make faults` causes all of them in every stage.
"""

from __future__ import annotations

import pytest

from stack.hadoop.cluster import Cluster
from tests.cluster.jobs import Exports
from tests.cluster.recovery.faults import FAULTS, find_leftovers, run_with_fault
from trainyard.cli.main import main
from trainyard.schemas.datasets import manifest

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(1200)]

SLOW = """
    import time

    def rows(spark, source):
        spark.sparkContext.parallelize(range(1), 1).foreach(lambda _: time.sleep(10))
        return spark.range(500)
"""


@pytest.mark.parametrize("fault", ["driver", pytest.param("ResourceManager", marks=pytest.mark.faults)])
def test_one_application_does_the_work_after_a_fault(exports: Exports, cluster: Cluster, fault: str) -> None:
    plan = exports.plan(SLOW)
    record = run_with_fault(plan, cluster, FAULTS[fault])
    assert record.output["rows"] == 500
    dataset = str(plan.job.spec["dataset"])
    assert manifest.read_current(dataset).rows == 500
    assert main(["dataset", "verify", dataset]) == 0
    assert find_leftovers(plan, cluster) == []
