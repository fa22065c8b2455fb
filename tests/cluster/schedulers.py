"""Applications on YARN with other queues and another scheduler than those of the tests: a row of `make matrix`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.hadoop.cluster import Cluster
from stack.hadoop.config import PARTITION, Properties
from tests.cluster.conftest import list_applications
from tests.cluster.jobs import Exports, run_to_end
from trainyard.errors import TrainyardError
from trainyard.files import uris
from trainyard.planning.placement import Placement
from trainyard.yarn import cluster as live
from trainyard.yarn import fit

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(900)]

CAPACITY = "yarn.scheduler.capacity.root"
NESTED: Properties = {
    f"{CAPACITY}.queues": "teams,users",
    f"{CAPACITY}.teams.queues": "data,science",
    f"{CAPACITY}.teams.capacity": "3w",
    f"{CAPACITY}.teams.accessible-node-labels": PARTITION,
    f"{CAPACITY}.teams.accessible-node-labels.{PARTITION}.capacity": "1w",
    f"{CAPACITY}.teams.data.capacity": "1w",
    f"{CAPACITY}.teams.data.accessible-node-labels": " ",
    f"{CAPACITY}.teams.data.acl_submit_applications": "*",
    f"{CAPACITY}.teams.science.capacity": "1w",
    f"{CAPACITY}.teams.science.accessible-node-labels": PARTITION,
    f"{CAPACITY}.teams.science.accessible-node-labels.{PARTITION}.capacity": "1w",
    f"{CAPACITY}.teams.science.acl_submit_applications": "*",
    f"{CAPACITY}.users.capacity": "1w",
    f"{CAPACITY}.users.auto-queue-creation-v2.enabled": "true",
    f"{CAPACITY}.users.acl_submit_applications": "*",
}
"""Queues below queues with weights, and one below which YARN creates the queue that an application names."""
FAIR = """<?xml version="1.0"?>
<allocations>
  <queue name="etl"><weight>1</weight></queue>
  <queue name="teams"><queue name="science"><weight>2</weight></queue></queue>
</allocations>
"""


FAIR_SCHEDULER = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler"


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose queues are below other queues."""
    with Cluster.launch(tmp_path_factory.mktemp("nested"), properties={"capacity-scheduler": NESTED}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with the FairScheduler, which knows no node labels."""
    allocations: Path = tmp_path_factory.mktemp("allocations") / "fair-scheduler.xml"
    allocations.write_text(FAIR)
    properties: Properties = {
        "yarn.resourcemanager.scheduler.class": FAIR_SCHEDULER,
        "yarn.scheduler.fair.allocation.file": allocations,
    }
    with Cluster.launch(tmp_path_factory.mktemp("fair"), properties={"yarn-site": properties}) as cluster:
        yield cluster


def connect(cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Exports:
    for name, value in cluster.build_environment().items():
        monkeypatch.setenv(name, value)
    return Exports(folder, uris.join(cluster.storage, folder.name))


def export(exports: Exports, cluster: Cluster, placement: Placement, log: list[str]) -> object:
    """Run an export, and return the queue of its application."""
    plan = exports.plan(placement=placement)
    assert run_to_end(plan, log.append).status == "succeeded"
    [application] = list_applications(cluster, plan.tag)
    return application["queue"]


@pytest.mark.parametrize(
    ("placement", "path"),
    [
        (Placement(queue="data"), "root.teams.data"),
        (Placement(queue="root.teams.data"), "root.teams.data"),
        (Placement(queue="root.teams.science", node_label="gpu"), "root.teams.science"),
        (Placement(queue="root.users.ann"), "root.users.ann"),
    ],
    ids=["by its name", "by its path", "with a label", "created on demand"],
)
def test_a_nested_queue_runs_an_application(
    nested: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placement: Placement, path: str
) -> None:
    exports = connect(nested, tmp_path, monkeypatch)
    assert export(exports, nested, placement, []) == path


def test_a_queue_with_queues_below_it_is_refused_with_their_names(
    nested: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = connect(nested, tmp_path, monkeypatch).plan(placement=Placement(queue="teams"))
    problems = [finding.problem for finding in fit.check_plan(plan, live.take_snapshot())]
    assert any("root.teams accepts no applications, the queues below it do: data, science" in text for text in problems)


@pytest.mark.parametrize("queue", ["etl", "root.teams.science"])
def test_the_fair_scheduler_runs_an_application_without_a_check(
    fair: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    exports, log = connect(fair, tmp_path, monkeypatch), list[str]()
    assert str(export(exports, fair, Placement(queue=queue), log)).removeprefix("root.") == queue.removeprefix("root.")
    assert any("submitted without a check against the cluster" in line for line in log)


def test_a_whole_node_cannot_be_planned_for_the_fair_scheduler(
    fair: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Placement(queue="etl", isolation="whole_node")
    plan = connect(fair, tmp_path, monkeypatch).plan(placement=whole)
    with pytest.raises(TrainyardError, match="CapacityScheduler"):
        run_to_end(plan)
