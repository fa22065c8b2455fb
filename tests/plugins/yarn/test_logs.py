"""The program that reads the logs of containers. On a cluster: tests/cluster/test_diagnosis.py."""

from __future__ import annotations

from trainyard.yarn import logs


def test_the_program_that_reads_logs_exists() -> None:
    assert logs.READER.is_file()
