"""Which daemons of booted hosts have not reported yet."""

from __future__ import annotations

import pytest

from stack.hosts.registration import find_silent

HOSTS = {"datanode1": "node1", "node1": "node1", "gpunode1": "gpunode1"}
STARTED = {"datanode1": 100.0, "node1": 100.0, "gpunode1": 160.0}
NODES = [
    {"nodeHostName": "node1", "lastHealthUpdate": 101_000},
    {"nodeHostName": "gpunode1", "lastHealthUpdate": 161_000},
]
DATA_NODES = {"node1:9866": {"lastContact": 1}}


def test_nothing_is_silent_when_all_have_reported_since_they_were_started() -> None:
    assert find_silent(STARTED, HOSTS, NODES, DATA_NODES, 170.0) == []


def test_a_node_that_yarn_lists_from_before_its_host_was_booted_is_silent() -> None:
    assert find_silent(STARTED | {"gpunode1": 165.0}, HOSTS, NODES, DATA_NODES, 170.0) == ["gpunode1"]


@pytest.mark.parametrize(("seconds", "silent"), [(8, []), (9, []), (10, ["datanode1"])])
def test_a_data_node_is_silent_until_it_reports_again(seconds: int, silent: list[str]) -> None:
    """The seconds since it reported are whole: 9 are less than 10."""
    data_nodes = {"node1:9866": {"lastContact": seconds}}
    assert find_silent(STARTED | {"datanode1": 160.0}, HOSTS, NODES, data_nodes, 170.0) == silent


def test_nodes_that_are_not_listed_are_silent() -> None:
    assert find_silent(STARTED, HOSTS, [], {}, 170.0) == [*STARTED]
