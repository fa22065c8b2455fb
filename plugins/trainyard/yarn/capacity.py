"""How many of an application's containers a cluster has room for. Pure functions."""

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
    """What an application asks YARN for: a driver, and `count` executors that it cannot do without."""

    driver: Resources
    executor: Resources
    count: int
    driver_partition: str
    partition: str

    @property
    def total(self) -> Resources:
        """All of it that comes out of the executors' partition."""
        executors = self.executor * self.count
        return executors + self.driver if self.driver_partition == self.partition else executors


def containers(plan: Plan, snapshot: ClusterSnapshot, queue: Queue) -> tuple[Size, Size]:
    """Driver and executor of `plan` in `queue`, as the cluster rounds them.

    Raises TrainyardError for one that is never granted.
    """
    limits = snapshot.limits(queue, queue.partition(plan.placement.node_label))
    driver_limits = snapshot.limits(queue, queue.partition(plan.placement.driver_label))
    driver = sizing.size(plan.driver_memory, plan.operator, "driver_memory", driver_limits)
    executor = sizing.size(plan.memory, plan.operator, "memory", limits)
    if plan.placement.isolation != "whole_node":
        return driver, executor
    return driver, sizing.fill(executor, _node_memory(plan, snapshot, queue, limits), plan.operator, limits)


def resource_request(plan: Plan, queue: Queue, driver: Size, executor: Size) -> ResourceRequest:
    """What `plan` cannot do without in `queue`, in containers of these sizes."""
    chosen = plan.placement
    return ResourceRequest(
        driver=Resources(driver.granted, cores=1),
        executor=Resources(executor.granted, int(plan.conf.get("spark.executor.cores", 1)), chosen.gpus_per_container),
        count=(plan.min_workers or 1) // chosen.workers_per_container,
        driver_partition=queue.partition(chosen.driver_label),
        partition=queue.partition(chosen.node_label),
    )


def executors(asked: ResourceRequest, nodes: Sequence[Node], free: bool = False) -> int:
    """How many of the executors have room on `nodes` at once, beside the driver; with `free`, at present.

    An executor is as large as any other, so a node holds what its scarcest resource allows; the driver
    goes where it costs least.
    """
    room = {node.id: node.free if free else node.total for node in nodes if node.partition == asked.partition}
    places = {id: _fitting(asked.executor, resources) for id, resources in room.items()}
    if asked.driver_partition != asked.partition:
        return sum(places.values())
    beside = [
        _fitting(asked.executor, resources - asked.driver) - places[id]
        for id, resources in room.items()
        if asked.driver.within(resources)
    ]
    return sum(places.values()) + max(beside) if beside else 0


def pools(snapshot: ClusterSnapshot) -> dict[str, dict[str, Any]]:
    """An Airflow pool for each partition with GPUs, as many slots as GPUs, in the form of `airflow pools import`.

    A gang that takes a slot for each of its GPUs (`pool_slots`) starts when it has them all. Deferred
    tasks keep their slots, for that is what a gang is while it runs.
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


def shortfall(asked: ResourceRequest, snapshot: ClusterSnapshot, queue: Queue) -> str:
    """What `asked` lacks at present, empty when it has room; what others wait for already is not free."""
    room = executors(asked, snapshot.nodes, free=True)
    if room < asked.count:
        return f"{room} of {asked.count} containers have room"
    free = sum((node.free for node in snapshot.nodes_of(asked.partition)), Resources())
    if not asked.total.within(free - snapshot.pending(asked.partition)):
        return "what is free is waited for by others already"
    most, used = queue.most.get(asked.partition, Resources()), queue.used.get(asked.partition, Resources())
    if not asked.total.within(most - used):
        return f"queue {queue.path} has used up its share"
    if not any(asked.driver.within(node.free) for node in snapshot.nodes_of(asked.driver_partition)):
        return "the driver has no room"
    return ""


def _fitting(container: Resources, room: Resources) -> int:
    count = room.memory // container.memory
    if container.gpus:
        count = min(count, room.gpus // container.gpus, room.cores // container.cores)
    return max(count, 0)


def _node_memory(plan: Plan, snapshot: ClusterSnapshot, queue: Queue, limits: Limits) -> int:
    """The memory of each node, which must be one figure for a container to fill any of them."""
    nodes = snapshot.nodes_of(queue.partition(plan.placement.node_label))
    found = sorted({node.total.memory // limits.step * limits.step for node in nodes})
    if len(found) > 1:
        raise TrainyardError(
            f"{plan.operator}: isolation='whole_node' fills nodes of one size, and those of partition "
            f"{plan.placement.node_label!r} offer {', '.join(f'{size} MB' for size in found)}. Give them one size, "
            "or choose another isolation."
        )
    return found[0] if found else limits.largest
