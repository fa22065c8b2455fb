"""A snapshot of a cluster: nodes, partitions, queues and limits."""

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
    """The cluster's scheduler is not a CapacityScheduler, the only one whose queues and partitions are read here."""


@dataclass(frozen=True)
class Resources:
    """Resources of a container, a node or a queue: `memory` in MB, cores, GPUs."""

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
        """Return whether `limit` has enough of each resource. Cores count only together with GPUs.

        A CapacityScheduler that counts GPUs (DominantResourceCalculator) counts cores too; its default calculator
        ignores both, and REST does not show which one is used.
        """
        enough = self.memory <= limit.memory and self.gpus <= limit.gpus
        return enough and (not self.gpus or self.cores <= limit.cores)


@dataclass(frozen=True)
class Node:
    """A node that runs containers: its total and its free resources."""

    id: str
    partition: str
    total: Resources
    free: Resources


@dataclass(frozen=True)
class Queue:
    """A queue.

    Attributes:
        name: The name.
        path: The path from the root.
        leaf: Whether it has no queues below it; only such a queue accepts applications.
        running: Whether it accepts applications.
        labels: The node labels that it may use.
        default_label: The partition of containers without a label expression.
        max_allocation: The largest container.
        max: Partition -> the most that it may use.
        used: Partition -> what it uses.
        pending: Partition -> what its applications wait for.
        submitters: Its submission ACL and those of the queues above.
    """

    name: str
    path: str
    leaf: bool
    running: bool
    labels: frozenset[str]
    default_label: str
    max_allocation: Resources
    max: Mapping[str, Resources]
    used: Mapping[str, Resources]
    pending: Mapping[str, Resources]
    submitters: tuple[str, ...]

    def may_use(self, partition: str) -> bool:
        """Return whether the queue may use a partition."""
        return partition == DEFAULT_PARTITION or partition in self.labels or "*" in self.labels

    def partition(self, label: str | None) -> str:
        """Return the partition of a label expression in this queue."""
        return label or self.default_label

    def admits(self, user: str) -> bool:
        """Return whether `user` may submit. An ACL with groups counts as open: only Hadoop has their members."""
        return any(_admits(acl, user) for acl in self.submitters)


@dataclass(frozen=True)
class ClusterSnapshot:
    """A cluster at one moment, for `user`. `step` is the unit of container memory, in MB."""

    user: str
    nodes: tuple[Node, ...]
    partitions: frozenset[str]
    queues: tuple[Queue, ...]
    step: int

    def queue(self, name: str) -> Queue | None:
        """Return the queue of a name or path, None if there is none."""
        return next((queue for queue in self.queues if name in (queue.name, queue.path, f"root.{queue.path}")), None)

    def nodes_of(self, partition: str) -> tuple[Node, ...]:
        """Return the nodes of a partition."""
        return tuple(node for node in self.nodes if node.partition == partition)

    def pending(self, partition: str) -> Resources:
        """Return what the applications of all queues wait for on a partition."""
        leaves = (queue for queue in self.queues if queue.leaf)
        return sum((queue.pending.get(partition, Resources()) for queue in leaves), Resources())

    def limits(self, queue: Queue, partition: str) -> Limits:
        """Return the limits of a container of `queue` on `partition`: the scheduler's, or those of the largest node."""
        limit = Limits(self.step, queue.max_allocation.memory, "yarn.scheduler.maximum-allocation-mb")
        node = max((node.total.memory for node in self.nodes_of(partition)), default=limit.largest)
        if node >= limit.largest:
            return limit
        where = f"in partition {partition!r}" if partition else "without a label"
        return Limits(self.step, node, f"yarn.nodemanager.resource.memory-mb of the largest node {where}")


def take_snapshot(manager: ResourceManager, user: str) -> ClusterSnapshot:
    """Take a snapshot with five requests, whatever the size of the cluster.

    Raises:
        UnreachableError: No ResourceManager answers.
        OtherSchedulerError: The cluster's scheduler is not a CapacityScheduler.
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
    """Yield the queue of `entry` and all queues below it; a missing setting is inherited from the queue above."""
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
        max_allocation=_resources(largest),
        max={c["partitionName"]: _resources(c["effectiveMaxResource"]) for c in capacities},
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
    """Evaluate an ACL in Hadoop's notation: "*", or "user,user group,group"."""
    users, _, groups = acl.partition(" ")
    return acl.strip() == "*" or user in users.split(",") or bool(groups.strip())


def _resources(entry: Mapping[str, Any]) -> Resources:
    kinds = (entry.get("resourceInformations") or {}).get("resourceInformation", [])
    gpus = sum(kind["value"] for kind in kinds if kind["name"] == _GPU)
    return Resources(entry["memory"], entry["vCores"], gpus)
