"""Count how many containers of an application a cluster has room for. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.errors import TrainyardError
from trainyard.planning import sizing
from trainyard.planning.plan import Plan
from trainyard.planning.sizing import Limits, Size
from trainyard.yarn.snapshot import DEFAULT_PARTITION, ClusterSnapshot, Node, Queue, Resources


@dataclass(frozen=True)
class ResourceRequest:
    """What an application requests from YARN: a driver, and `count` executors at once."""

    driver: Resources
    executor: Resources
    count: int
    driver_partition: str
    partition: str

    @property
    def counts_cores(self) -> bool:
        """Whether cores limit where containers run: they do where several of them or GPUs are requested.

        A CapacityScheduler with the DominantResourceCalculator, which GPUs need, counts cores; its default calculator
        ignores them, and REST does not show which one is used.
        """
        return self.executor.cores > 1 or self.executor.gpus > 0

    @property
    def total(self) -> Resources:
        """The sum of what is requested from the executors' partition."""
        executors = self.executor * self.count
        return executors + self.driver if self.driver_partition == self.partition else executors


def containers(plan: Plan, snapshot: ClusterSnapshot, queue: Queue) -> tuple[Size, Size]:
    """Return the sizes of driver and executor in a queue, as the cluster rounds them.

    Raises:
        TrainyardError: The cluster can never grant one of them.
    """
    limits = snapshot.limits(queue)
    driver = sizing.driver_size(plan.job.driver_memory, plan.job.operator, limits)
    executor = sizing.size(plan.job.memory, plan.job.operator, "memory", limits)
    if plan.job.placement.isolation != "whole_node":
        return driver, executor
    return driver, sizing.fill(executor, _node_memory(plan, snapshot, queue, limits), plan.job.operator, limits)


def resource_request(plan: Plan, queue: Queue, driver: Size, executor: Size) -> ResourceRequest:
    """Return the minimum that a plan requests in a queue, in containers of these sizes."""
    placement, executors = plan.job.placement, plan.executors
    workers = plan.job.needed_workers and plan.job.needed_workers // placement.workers_per_container
    return ResourceRequest(
        driver=Resources(driver.granted, cores=1),
        executor=Resources(executor.granted, executors.cores or 1, plan.job.gpus_per_container),
        count=workers or executors.min_count or executors.count or 1,
        driver_partition=queue.partition(placement.driver_label),
        partition=queue.partition(placement.node_label),
    )


def count_executors(request: ResourceRequest, nodes: Sequence[Node], free: bool = False) -> int:
    """Return how many executors fit on the nodes at once, beside the driver.

    All executors have one size, so a node's scarcest resource decides how many it runs. The driver is placed where it
    displaces the fewest executors.

    Args:
        request: The request.
        nodes: The nodes of the cluster.
        free: Whether to count what is free now, instead of the whole nodes.
    """
    room = {node.id: node.free if free else node.total for node in nodes if node.partition == request.partition}
    counts = {id: _fitting(request, resources) for id, resources in room.items()}
    if request.driver_partition != request.partition:
        return sum(counts.values())
    displaced = [
        _fitting(request, resources - request.driver) - counts[id]
        for id, resources in room.items()
        if request.driver.within(resources, request.counts_cores)
    ]
    return sum(counts.values()) + max(displaced) if displaced else 0


def pools(snapshot: ClusterSnapshot) -> dict[str, dict[str, Any]]:
    """Return an Airflow pool for each partition with GPUs, with a slot for each GPU, as `airflow pools import` reads.

    A task whose `pool_slots` is the number of its GPUs starts when all of them are free. Deferred tasks keep their
    slots, because their worker group runs.
    """
    gpus = {p: sum(node.total.gpus for node in snapshot.nodes_of(p)) for p in (DEFAULT_PARTITION, *snapshot.partitions)}
    return {
        partition or "gpus": {
            "slots": count,
            "description": f"GPUs of nodes {'of partition ' + partition if partition else 'without a label'}",
            "include_deferred": True,
        }
        for partition, count in sorted(gpus.items())
        if count
    }


def shortfall(request: ResourceRequest, snapshot: ClusterSnapshot, queue: Queue) -> str:
    """Return why a request does not fit now, "" if it does.

    Resources that others wait for do not count as free, as far as the limits of their queues let them have them.
    """
    room = count_executors(request, snapshot.nodes, free=True)
    if room < request.count:
        return f"{room} of {request.count} containers have room"
    free = sum((node.free for node in snapshot.nodes_of(request.partition)), Resources())
    if not request.total.within(free - snapshot.pending(request.partition), request.counts_cores):
        return "other applications wait for the free resources"
    limit, used = queue.limit(request.partition), queue.used.get(request.partition, Resources())
    if not request.total.within(limit - used, request.counts_cores):
        return f"queue {queue.path} has reached its capacity"
    drivers = snapshot.nodes_of(request.driver_partition)
    if not any(request.driver.within(node.free, request.counts_cores) for node in drivers):
        return "the driver has no room"
    return ""


def _fitting(request: ResourceRequest, room: Resources) -> int:
    executor = request.executor
    count = room.memory // executor.memory
    if request.counts_cores:
        count = min(count, room.cores // executor.cores)
    if executor.gpus:
        count = min(count, room.gpus // executor.gpus)
    return max(count, 0)


def _node_memory(plan: Plan, snapshot: ClusterSnapshot, queue: Queue, limits: Limits) -> int:
    """Return the memory of each node. All nodes must have the same, so that a container fills any of them."""
    nodes = snapshot.nodes_of(queue.partition(plan.job.placement.node_label))
    sizes = sorted({node.total.memory // limits.step * limits.step for node in nodes})
    if len(sizes) > 1:
        raise TrainyardError(
            f"{plan.job.operator}: isolation='whole_node' needs nodes of one size, and those of partition "
            f"{plan.job.placement.node_label!r} have {', '.join(f'{size} MB' for size in sizes)}. Give them one size, "
            "or choose another isolation."
        )
    return sizes[0] if sizes else limits.largest
