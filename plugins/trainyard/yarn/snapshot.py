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
_RESOURCES = {"availableResource", "usedResource"}
"""What a node reports after the scheduler has added it, some time after its registration."""
_GPU = "yarn.io/gpu"
_OWN_AUTHORIZER = "org.apache.hadoop.yarn.security.ConfiguredYarnAuthorizer"
_ACCESS = ("SUBMIT_APP", "ADMINISTER_QUEUE")
"""The accesses of which each permits to submit (RMAppManager of Hadoop 3.3 and 3.5)."""


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

    def within(self, limit: Resources, counts_cores: bool) -> bool:
        """Return whether `limit` has enough of each resource; of cores, if they count."""
        enough = self.memory <= limit.memory and self.gpus <= limit.gpus
        return enough and (not counts_cores or self.cores <= limit.cores)

    def up_to(self, limit: Resources) -> Resources:
        """Return the part of a demand that a limit allows: none where memory or a GPU that it needs is exhausted."""
        if limit.memory <= 0 or (self.gpus and limit.gpus <= 0):
            return Resources()
        return Resources(
            min(self.memory, limit.memory), min(self.cores, max(limit.cores, 0)), min(self.gpus, max(limit.gpus, 0))
        )

    def __str__(self) -> str:
        if self == UNLIMITED:
            return "no limit"
        parts = [f"{self.memory} MB", f"{self.cores} core{'s' * (self.cores != 1)}"]
        if self.gpus:
            parts.append(f"{self.gpus} GPU{'s' * (self.gpus != 1)}")
        return ", ".join(parts)


UNLIMITED = Resources(1 << 40, 1 << 40, 1 << 40)
"""A limit that the cluster does not have, or does not show."""


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
        submitters: The ACLs of submission and administration, of the queue and those above; None if unknown.
        creates_queues: Whether YARN creates queues below it on demand.
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
    submitters: tuple[str, ...] | None
    creates_queues: bool = False

    def may_use(self, partition: str) -> bool:
        """Return whether the queue may use a partition."""
        return partition == DEFAULT_PARTITION or partition in self.labels or "*" in self.labels

    def partition(self, label: str | None) -> str:
        """Return the partition of a label expression in this queue."""
        return label or self.default_label

    def limit(self, partition: str) -> Resources:
        """Return the most that the queue may use of a partition."""
        return self.max.get(partition, Resources() if self.max else UNLIMITED)

    def admits(self, user: str) -> bool:
        """Return whether `user` may submit. Unknown ACLs count as open, and those with groups: their members are."""
        return self.submitters is None or any(_admits(acl, user) for acl in self.submitters)


@dataclass(frozen=True)
class ClusterSnapshot:
    """A cluster at one moment, for `user`.

    Attributes:
        user: The user who submits.
        nodes: The nodes that run containers.
        partitions: The node labels.
        queues: The queues.
        step: The unit of container memory, in MB.
        replaces_queues: Whether placement rules replace any queue that an application names.
    """

    user: str
    nodes: tuple[Node, ...]
    partitions: frozenset[str]
    queues: tuple[Queue, ...]
    step: int
    replaces_queues: bool = False

    def queue(self, name: str) -> Queue | None:
        """Return the queue of a name or path, None if there is none."""
        return next((queue for queue in self.queues if name in (queue.name, queue.path, f"root.{queue.path}")), None)

    def queue_of(self, name: str) -> Queue:
        """Return the queue of a name or path; of one that does not exist now, what is assumed: it has no limits."""
        assumed = Queue(name, name, True, True, frozenset("*"), DEFAULT_PARTITION, UNLIMITED, {}, {}, {}, None)
        return self.queue(name) or assumed

    def submission_name(self, queue: Queue) -> str:
        """Return the name by which YARN finds a queue: its own, or its path where another queue has the same name.

        YARN before 3.3 does not know paths.
        """
        is_unique = sum(other.name == queue.name for other in self.queues if other.leaf) == 1
        return queue.name if is_unique else queue.path

    def nodes_of(self, partition: str) -> tuple[Node, ...]:
        """Return the nodes of a partition."""
        return tuple(node for node in self.nodes if node.partition == partition)

    def pending(self, partition: str) -> Resources:
        """Return what applications wait for on a partition, as far as the limits of their queues let them have it."""
        below: dict[str, list[Queue]] = {}
        for queue in self.queues:
            below.setdefault(queue.path.rpartition(".")[0], []).append(queue)

        def demand(queue: Queue) -> Resources:
            inner = below.get(queue.path, [])
            pending = queue.pending.get(partition, Resources()) if queue.leaf else sum(map(demand, inner), Resources())
            return pending.up_to(queue.limit(partition) - queue.used.get(partition, Resources()))

        paths = {queue.path for queue in self.queues}
        tops = (queue for queue in self.queues if queue.path.rpartition(".")[0] not in paths)
        return sum(map(demand, tops), Resources())

    def largest_container(self, queue: Queue) -> Resources:
        """Return the largest container that YARN grants to a queue now (ClusterNodeTracker.getMaxAllowedAllocation).

        The scheduler's limit, or of each resource that of the node with the most of it.
        """
        if not self.nodes:
            return queue.max_allocation
        limit, totals = queue.max_allocation, [node.total for node in self.nodes]
        return Resources(
            min(limit.memory, max(total.memory for total in totals)),
            min(limit.cores, max(total.cores for total in totals)),
            min(limit.gpus, max(total.gpus for total in totals)),
        )

    def limits(self, queue: Queue) -> Limits:
        """Return the limits of the memory of a container of `queue`."""
        largest, limit = self.largest_container(queue).memory, queue.max_allocation.memory
        by_node = "yarn.nodemanager.resource.memory-mb of the largest node"
        return Limits(self.step, largest, by_node if largest < limit else "yarn.scheduler.maximum-allocation-mb")


def take_snapshot(manager: ResourceManager, user: str, site: Mapping[str, str]) -> ClusterSnapshot:
    """Take a snapshot with four requests, whatever the size of the cluster.

    Hadoop before 3.3 reports neither limits nor ACLs of a queue. Limits are then those of the configuration.

    Args:
        manager: The client of the ResourceManager.
        user: The user who submits.
        site: The client's yarn-site.xml, for settings that the ResourceManager does not show to this user.

    Raises:
        UnreachableError: No ResourceManager answers.
        OtherSchedulerError: The cluster's scheduler is not a CapacityScheduler.
    """
    nodes = (manager.get("nodes").get("nodes") or {}).get("node", [])
    labels = manager.get("get-node-labels").get("nodeLabelInfo") or []
    root = manager.get("scheduler")["scheduler"]["schedulerInfo"]
    if root["type"] != "capacityScheduler":
        raise OtherSchedulerError(f"the cluster's scheduler is a {root['type']}, not a CapacityScheduler.")
    settings = {**site, **manager.settings()}
    return ClusterSnapshot(
        user=user,
        nodes=tuple(_node(entry) for entry in nodes if entry["state"] in USABLE and entry.keys() >= _RESOURCES),
        partitions=frozenset(entry["name"] for entry in (labels if isinstance(labels, list) else [labels])),
        queues=tuple(_queues(root, "", _acls(settings), _largest(settings))),
        step=_read_number(settings, "yarn.scheduler.minimum-allocation-mb", 1024),
        replaces_queues=settings.get("yarn.scheduler.capacity.queue-mappings-override.enable") == "true",
    )


def _acls(settings: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the ACLs that hold for all queues; None where another authorizer, such as Ranger, has its own."""
    enforced = settings.get("yarn.acl.enable")
    if enforced == "false":
        return ("*",)
    by_yarn = settings.get("yarn.authorization-provider") in (None, "", _OWN_AUTHORIZER)
    return () if enforced == "true" and by_yarn else None


def _largest(settings: Mapping[str, str]) -> Resources:
    return Resources(
        _read_number(settings, "yarn.scheduler.maximum-allocation-mb", UNLIMITED.memory),
        _read_number(settings, "yarn.scheduler.maximum-allocation-vcores", UNLIMITED.cores),
        _read_number(settings, f"yarn.resource-types.{_GPU}.maximum-allocation", UNLIMITED.gpus),
    )


def _node(entry: Mapping[str, Any]) -> Node:
    free, used = _resources(entry["availableResource"]), _resources(entry["usedResource"])
    return Node(entry["id"], (entry.get("nodeLabels") or [DEFAULT_PARTITION])[0], free + used, free)


def _queues(entry: Mapping[str, Any], above: str, acls: tuple[str, ...] | None, largest: Resources) -> Iterator[Queue]:
    """Yield the queue of `entry` and all queues below it; a missing setting is inherited from the queue above."""
    path = f"{above}.{entry['queueName']}" if above else entry["queueName"]
    if "maximumAllocation" in entry:
        largest = _resources(entry["maximumAllocation"])
    own = _submitters(entry)
    acls = None if acls is None or own is None else (*acls, *own)
    below = (entry.get("queues") or {}).get("queue", [])
    creates_queues = bool(entry.get("autoCreateChildQueueEnabled")) or (
        entry.get("autoCreationEligibility", "off") != "off"
    )
    capacities = (entry.get("capacities") or {}).get("queueCapacitiesByPartition", [])
    usages = (entry.get("resources") or {}).get("resourceUsagesByPartition", [])
    yield Queue(
        name=entry["queueName"],
        path=path,
        leaf=not below and not creates_queues,
        running=entry.get("state", "RUNNING") == "RUNNING",
        labels=frozenset(entry.get("nodeLabels") or []),
        default_label=(entry.get("defaultNodeLabelExpression") or DEFAULT_PARTITION).strip(),
        max_allocation=largest,
        max={c["partitionName"]: _resources(c["effectiveMaxResource"]) for c in capacities},
        used={u["partitionName"]: _resources(u["used"]) for u in usages},
        pending={u["partitionName"]: _resources(u["pending"]) for u in usages},
        submitters=acls,
        creates_queues=creates_queues,
    )
    for child in below:
        yield from _queues(child, path, acls, largest)


def _submitters(entry: Mapping[str, Any]) -> list[str] | None:
    if "queueAcls" not in entry:
        return None
    acls = (entry["queueAcls"] or {}).get("queueAcl", [])
    return [acl["accessControlList"] for acl in acls if acl["accessType"] in _ACCESS]


def _admits(acl: str, user: str) -> bool:
    """Evaluate an ACL in Hadoop's notation: "*", or "user,user group,group"."""
    users, _, groups = acl.partition(" ")
    return acl.strip() == "*" or user in users.split(",") or bool(groups.strip())


def _resources(entry: Mapping[str, Any]) -> Resources:
    kinds = (entry.get("resourceInformations") or {}).get("resourceInformation", [])
    gpus = sum(kind["value"] for kind in kinds if kind["name"] == _GPU)
    return Resources(entry["memory"], entry["vCores"], gpus)


def _read_number(settings: Mapping[str, str], name: str, default: int) -> int:
    """Return a number in a configuration; `default` where it is absent, or refers to another setting."""
    text = settings.get(name, "")
    return int(text) if text.isdigit() else default
