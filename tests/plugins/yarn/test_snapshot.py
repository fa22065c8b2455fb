"""Snapshots of clusters whose ResourceManagers differ in what they report.

The fields are those of the classes CapacitySchedulerInfo, CapacitySchedulerQueueInfo, NodeInfo and ResourceInfo of
Hadoop: 3.2.1 has neither `maximumAllocation` nor `queueAcls`, and before 3.1 a resource has only memory and cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.plugins.resource_managers import Answer, serve
from trainyard.yarn.resource_manager import ResourceManager
from trainyard.yarn.snapshot import UNLIMITED, ClusterSnapshot, OtherSchedulerError, Resources, take_snapshot

CONF = {"yarn.acl.enable": "true", "yarn.scheduler.minimum-allocation-mb": "512"}
LARGEST = {"yarn.scheduler.maximum-allocation-mb": "8192", "yarn.scheduler.maximum-allocation-vcores": "8"}


def resource(memory: int, cores: int, gpus: int | None = None) -> dict[str, Any]:
    entry: dict[str, Any] = {"memory": memory, "vCores": cores}
    if gpus is not None:
        kinds = [{"name": "memory-mb", "value": memory}, {"name": "yarn.io/gpu", "value": gpus}]
        entry["resourceInformations"] = {"resourceInformation": kinds}
    return entry


NODE = {"id": "n1:45454", "state": "RUNNING"} | {
    "usedResource": resource(1024, 1, 0), "availableResource": resource(7168, 7, 2)
}  # fmt: skip
QUEUE: dict[str, Any] = {
    "queueName": "train", "queuePath": "root.train", "state": "RUNNING", "defaultNodeLabelExpression": "",
    "capacities": {"queueCapacitiesByPartition": [
        {"partitionName": "", "effectiveMaxResource": resource(8192, 8, 2)},
    ]},
    "resources": {"resourceUsagesByPartition": [
        {"partitionName": "", "used": resource(1024, 1, 0), "pending": resource(0, 0, 0)},
    ]},
}  # fmt: skip
ROOT = {"type": "capacityScheduler", "queueName": "root", "queues": {"queue": [QUEUE]}}


@contextmanager
def cluster(
    root: dict[str, Any] = ROOT, node: dict[str, Any] = NODE, conf: dict[str, str] | None = CONF
) -> Iterator[ResourceManager]:
    """Serve a cluster; one without `conf` refuses to show its configuration."""
    properties = [{"key": name, "value": value} for name, value in (conf or {}).items()]
    answers = {
        "/ws/v1/cluster/nodes": Answer({"nodes": {"node": [node]}}),
        "/ws/v1/cluster/get-node-labels": Answer({}),
        "/ws/v1/cluster/scheduler": Answer({"scheduler": {"schedulerInfo": root}}),
        "/conf": Answer({"properties": properties}) if conf else Answer("<html>Unauthorized</html>", 403),
    }
    with serve(lambda _, path, __: answers[path]) as server:
        yield ResourceManager((server.url,), "ada")


def snapshot_of(site: dict[str, str] | None = None, **parts: Any) -> ClusterSnapshot:
    with cluster(**parts) as manager:
        return take_snapshot(manager, "ada", site or {})


def largest_container(at: ClusterSnapshot) -> Resources:
    queue = at.queue("train")
    assert queue
    return queue.max_allocation


def test_a_node_that_the_scheduler_does_not_know_yet_runs_no_containers() -> None:
    """As for seconds after it has registered, or after the ResourceManager has started."""
    assert snapshot_of(node={"id": "n2:45454", "state": "RUNNING"}).nodes == ()


def test_the_largest_container_is_that_of_the_queue() -> None:
    at = snapshot_of(root=ROOT | {"maximumAllocation": resource(4096, 4, 4)}, conf=CONF | LARGEST)
    assert largest_container(at) == Resources(4096, 4, 4)


def test_without_a_queue_limit_the_largest_container_is_that_of_the_configuration() -> None:
    at = snapshot_of(conf=CONF | LARGEST | {"yarn.resource-types.yarn.io/gpu.maximum-allocation": "4"})
    assert largest_container(at) == Resources(8192, 8, 4)


def test_what_the_resource_manager_does_not_show_is_read_from_the_client_configuration() -> None:
    at = snapshot_of(conf=None, site=LARGEST)
    assert largest_container(at) == Resources(8192, 8, UNLIMITED.gpus)


def test_a_limit_that_is_unknown_is_no_limit() -> None:
    at = snapshot_of(conf=None)
    queue = at.queue("train")
    assert queue and queue.max_allocation == UNLIMITED
    assert at.limits(queue).largest == 8192, "the node still is one"
    assert at.step == 1024, "Hadoop's default"


def test_unknown_acls_admit_every_user() -> None:
    queue = snapshot_of().queue("train")
    assert queue and queue.admits("ada")


def test_resources_without_a_list_of_kinds_have_memory_and_cores() -> None:
    node = NODE | {"usedResource": resource(1024, 1), "availableResource": resource(7168, 7)}
    assert snapshot_of(node=node).nodes[0].total == Resources(8192, 8, 0)


@pytest.mark.parametrize(("override", "replaces"), [("true", True), ("false", False), (None, False)])
def test_whether_placement_rules_replace_any_queue_is_a_setting(override: str | None, replaces: bool) -> None:
    setting = {"yarn.scheduler.capacity.queue-mappings-override.enable": override} if override else {}
    assert snapshot_of(conf=CONF | setting).replaces_queues is replaces


def test_another_scheduler_is_named() -> None:
    with pytest.raises(OtherSchedulerError, match="is a fairScheduler"):
        snapshot_of(root={"type": "fairScheduler", "rootQueue": {}})


@pytest.mark.parametrize(("paths", "name"), [(("a.etl", "b.train"), "etl"), (("a.etl", "b.etl"), "a.etl")])
def test_a_queue_is_submitted_to_by_its_name_unless_another_one_has_it(paths: tuple[str, ...], name: str) -> None:
    at = snapshot_of()
    queues = [replace(at.queue_of("other"), name=path.rpartition(".")[2], path=path) for path in paths]
    assert replace(at, queues=tuple(queues)).submission_name(queues[0]) == name
