"""The programs that need Hadoop's classes, and what is read of logs. On a cluster: tests/cluster/test_diagnosis.py."""

from __future__ import annotations

import pytest

from trainyard.checks import probe
from trainyard.yarn import java_programs, logs


@pytest.mark.parametrize("program", [logs.READER, probe.SUBMITTER])
def test_the_programs_that_need_hadoops_classes_exist(program: str) -> None:
    assert (java_programs.FOLDER / program).is_file()


def test_lost_containers_come_with_their_hosts_in_the_order_of_the_log() -> None:
    """YarnAllocator.processCompletedContainers of Spark 4.2; the scheduler repeats each loss."""
    log = (
        "ERROR YarnClusterScheduler: Lost executor 2 on gpu7.example.com: Container from a bad node: "
        "container_1_0001_01_000003 on host: gpu7.example.com. Exit status: 1. Diagnostics: Exception\n"
        "Container marked as failed: container_1_0001_01_000002 on host: gpu8. Exit status: -104. Diagnostics: x\n"
        "Container marked as failed: container_1_0001_01_000003 on host: gpu7.example.com. Exit status: 1.\n"
        "Completed container container_1_0001_01_000004 on host: gpu9 (state: COMPLETE, exit status: 0)\n"
    )
    assert logs.lost_containers(log) == {
        "container_1_0001_01_000003": "gpu7.example.com", "container_1_0001_01_000002": "gpu8"
    }  # fmt: skip
