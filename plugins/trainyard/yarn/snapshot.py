"""What a cluster has: nodes, partitions, queues and limits, as its ResourceManager tells them at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.errors import TrainyardError
from trainyard.planning.sizing import Limits
from trainyard.yarn.resource_manager import ResourceManager

DEFAULT_PARTITION = ""
USABLE = ("RUNNING", "NEW")
_GPU = "yarn.io/gpu"


class OtherSchedulerError(TrainyardError):
    """The cluster has no CapacityScheduler, whose queues and partitions alone are read here."""


@dataclass(frozen=True)
class Resources:
    """Of a container, a node or a queue: `memory` in MB, cores, GPUs."""

    memory: int = 0
    cores: int = 0
    gpus: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(self.memory + other.memory, self.cores + other.cores, self.gpus + other.gpus)

    def __sub__(self, other: Resources) -> Resources:
        return Resources(self.memory - other.memory, self.cores - other.cores, self.gpus - other.gpus)

    def __mul__(self, times: int) -> Resources:
        return Resources(self.memory * times, self.cores * times, self.gpus * times)

    def within(self, limit: Resources) -> bool:
        """Whether there is enough of each in `limit`. Cores count only where GPUs do.

        A CapacityScheduler that counts GPUs (DominantResourceCalculator) counts cores too; its default
        ignores both, and does not say which of the two it is.
        """
        enough = self.memory <= limit.memory and self.gpus <= limit.gpus
        return enough and (not self.gpus or self.cores <= limit.cores)


@dataclass(frozen=True)
class Node:
    """A node that runs containers, all of it and what is free at present."""

    id: str
    partition: str
    total: Resources
    free: Resources


@dataclass(frozen=True)
class Queue:
    """A queue; of each partition, what it may use at most, uses, and waits for.

    `default_label` is the partition of containers that ask for none.

    `submitters` is its ACL and those above it.
    """

    name: str
    path: str
    leaf: bool
    running: bool
    labels: frozenset[str]
    default_label: str
    largest: Resources
    most: Mapping[str, Resources]
    used: Mapping[str, Resources]
    pending: Mapping[str, Resources]
    submitters: tuple[str, ...]

    def may_use(self, partition: str) -> bool:
        return partition == DEFAULT_PARTITION or partition in self.labels or "*" in self.labels

    def partition(self, label: str | None) -> str:
        """The partition that a label expression means in this queue."""
        return label or self.default_label

    def admits(self, user: str) -> bool:
        """Whether `user` may submit. A queue open to groups counts as open: who is in them, only Hadoop knows."""
        return any(_admits(acl, user) for acl in self.submitters)


@dataclass(frozen=True)
class ClusterSnapshot:
    """One cluster at one moment. `limits` are those of any queue; a queue's own may be lower."""

    user: str
    nodes: tuple[Node, ...]
    partitions: frozenset[str]
    queues: tuple[Queue, ...]
    step: int

    def queue(self, name: str) -> Queue | None:
        """The queue of that name or path."""
        return next((queue for queue in self.queues if name in (queue.name, queue.path, f"root.{queue.path}")), None)

    def nodes_of(self, partition: str) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.partition == partition)

    def pending(self, partition: str) -> Resources:
        """What applications of any queue wait for on `partition`."""
        leaves = (queue for queue in self.queues if queue.leaf)
        return sum((queue.pending.get(partition, Resources()) for queue in leaves), Resources())

    def limits(self, queue: Queue, partition: str) -> Limits:
        """What one container of `queue` on `partition` can be: the scheduler's limit, or its largest node."""
        limit = Limits(self.step, queue.largest.memory, "yarn.scheduler.maximum-allocation-mb")
        node = max((node.total.memory for node in self.nodes_of(partition)), default=limit.largest)
        if node >= limit.largest:
            return limit
        where = f"in partition {partition!r}" if partition else "without a label"
        return Limits(self.step, node, f"yarn.nodemanager.resource.memory-mb of the largest node {where}")


def take_snapshot(manager: ResourceManager, user: str) -> ClusterSnapshot:
    """Ask for all of it: five questions, whatever the cluster's size.

    Raises UnreachableError, and OtherSchedulerError for a cluster without a CapacityScheduler.
    """
    nodes = (manager.get("nodes").get("nodes") or {}).get("node", [])
    labels = manager.get("get-node-labels").get("nodeLabelInfo") or []
    root = manager.get("scheduler")["scheduler"]["schedulerInfo"]
    if root["type"] != "capacityScheduler":
        raise OtherSchedulerError(f"the cluster's scheduler is a {root['type']}, not a CapacityScheduler.")
    enforced = manager.setting("yarn.acl.enable") == "true"
    return ClusterSnapshot(
        user=user,
        nodes=tuple(_node(entry) for entry in nodes if entry["state"] in USABLE),
        partitions=frozenset(entry["name"] for entry in (labels if isinstance(labels, list) else [labels])),
        queues=tuple(_queues(root, "", () if enforced else ("*",), root["maximumAllocation"])),
        step=int(manager.setting("yarn.scheduler.minimum-allocation-mb") or 1024),
    )


def _node(entry: Mapping[str, Any]) -> Node:
    free, used = _resources(entry["availableResource"]), _resources(entry["usedResource"])
    return Node(entry["id"], (entry.get("nodeLabels") or [DEFAULT_PARTITION])[0], free + used, free)


def _queues(entry: Mapping[str, Any], above: str, acls: tuple[str, ...], largest: Mapping[str, Any]) -> Iterator[Queue]:
    """The queue of `entry` and all below it; what a queue does not say of itself it has from the one above."""
    path = f"{above}.{entry['queueName']}" if above else entry["queueName"]
    largest = entry.get("maximumAllocation") or largest
    acls = (*acls, *_submitters(entry))
    below = (entry.get("queues") or {}).get("queue", [])
    capacities = (entry.get("capacities") or {}).get("queueCapacitiesByPartition", [])
    usages = (entry.get("resources") or {}).get("resourceUsagesByPartition", [])
    yield Queue(
        name=entry["queueName"],
        path=path,
        leaf=not below,
        running=entry.get("state", "RUNNING") == "RUNNING",
        labels=frozenset(entry.get("nodeLabels") or []),
        default_label=(entry.get("defaultNodeLabelExpression") or DEFAULT_PARTITION).strip(),
        largest=_resources(largest),
        most={c["partitionName"]: _resources(c["effectiveMaxResource"]) for c in capacities},
        used={u["partitionName"]: _resources(u["used"]) for u in usages},
        pending={u["partitionName"]: _resources(u["pending"]) for u in usages},
        submitters=acls,
    )
    for child in below:
        yield from _queues(child, path, acls, largest)


def _submitters(entry: Mapping[str, Any]) -> list[str]:
    acls = (entry.get("queueAcls") or {}).get("queueAcl", [])
    return [acl["accessControlList"] for acl in acls if acl["accessType"] == "SUBMIT_APP"]


def _admits(acl: str, user: str) -> bool:
    """By Hadoop's notation: "*", or "user,user group,group"."""
    users, _, groups = acl.partition(" ")
    return acl.strip() == "*" or user in users.split(",") or bool(groups.strip())


def _resources(entry: Mapping[str, Any]) -> Resources:
    kinds = (entry.get("resourceInformations") or {}).get("resourceInformation", [])
    gpus = sum(kind["value"] for kind in kinds if kind["name"] == _GPU)
    return Resources(entry["memory"], entry["vCores"], gpus)
