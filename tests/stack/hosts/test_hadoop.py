"""A Hadoop on hosts that cannot start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stack.hadoop.config import Properties
from stack.hosts.bed import run_hosts
from stack.hosts.hadoop import HOSTS, run_hadoop


@pytest.mark.full
@pytest.mark.hosts
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("properties", "expected", "cause"),
    [
        (
            {"hdfs-site": {"dfs.namenode.name.dir": "/proc/name"}},
            "HDFS cannot be formatted on host master",
            "/proc/name",
        ),
        (
            {"yarn-site": {"yarn.resourcemanager.scheduler.class": "none"}},
            "resourcemanager has ended on host master",
            "Could not instantiate Scheduler: none",
        ),
    ],
    ids=["format", "ResourceManager"],
)
def test_a_daemon_that_ends_is_named_with_its_host_and_a_log_that_has_the_cause(
    tmp_path: Path, properties: dict[str, Properties], expected: str, cause: str
) -> None:
    with (
        run_hosts(HOSTS, tmp_path) as hosts,
        pytest.raises(SystemExit, match=expected) as raised,
        run_hadoop(hosts, tmp_path / "hadoop", properties=properties),
    ):
        pass
    assert (log := re.search(r"see (\S+)$", str(raised.value)))
    assert cause in Path(log[1]).read_text()
