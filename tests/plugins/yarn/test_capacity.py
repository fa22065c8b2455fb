"""How many containers have room: against trying all ways, and against what is free."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plugins.snapshots import NODE, group_plan, node, queue, snapshot, stage_plan
from trainyard.planning.executors import Executors
from trainyard.planning.plan import Plan
from trainyard.yarn import capacity
from trainyard.yarn.capacity import ResourceRequest
from trainyard.yarn.snapshot import ClusterSnapshot, Node, Queue, Resources


def shortfall_beside(request: ResourceRequest, free: Resources) -> str:
    """Return the shortfall where the driver's node has this free, and the others are empty."""
    at = snapshot(nodes=(node("n1", "", Resources(6144, 4), free), *snapshot().nodes[1:]))
    return capacity.shortfall(request, at, queue("train", "gpu"))


containers = st.builds(Resources, st.integers(1, 8), st.integers(1, 3), st.integers(0, 2))
rooms = st.lists(st.builds(Resources, st.integers(0, 16), st.integers(0, 6), st.integers(0, 4)), max_size=4)


def request_for(plan: Plan, at: ClusterSnapshot) -> ResourceRequest:
    queue = at.queue(plan.queue)
    assert queue
    return capacity.resource_request(plan, queue, *capacity.containers(plan, at, queue))


def search(request: ResourceRequest, nodes: list[Node]) -> int:
    """Return the maximum of executors over every way to place them and the driver."""
    drivers = nodes if request.driver_partition == request.partition else [None]
    best = 0
    for driver, counts in product(drivers, product(range(17), repeat=len(nodes))):
        allocated = [
            request.executor * count + (request.driver if node is driver else Resources())
            for node, count in zip(nodes, counts, strict=True)
        ]
        if all(size.within(node.total, request.counts_cores) for size, node in zip(allocated, nodes, strict=True)):
            best = max(best, sum(counts))
    return best


@given(containers, rooms.filter(lambda sizes: len(sizes) <= 2))
def test_the_room_for_executors_equals_what_a_search_finds(executor: Resources, sizes: list[Resources]) -> None:
    nodes = [node(str(number), total=total) for number, total in enumerate(sizes)]
    request = ResourceRequest(Resources(2, 1), executor, 1, driver_partition="", partition="gpu")
    assert capacity.count_executors(request, nodes) == search(request, nodes)


@given(containers, rooms.filter(lambda sizes: len(sizes) <= 2))
def test_the_room_beside_the_driver_equals_what_a_search_finds(executor: Resources, sizes: list[Resources]) -> None:
    nodes = [node(str(number), total=total) for number, total in enumerate(sizes)]
    request = ResourceRequest(Resources(2, 1), executor, 1, driver_partition="gpu", partition="gpu")
    assert capacity.count_executors(request, nodes) == search(request, nodes)


def test_a_resource_request_has_the_sizes_that_yarn_grants() -> None:
    request = request_for(group_plan(4, workers_per_container=2), snapshot())
    assert request.executor == Resources(3072, cores=2, gpus=2)
    assert request.count == 2


def test_the_driver_is_requested_from_a_partition_of_its_own() -> None:
    labeled = snapshot(nodes=(*snapshot().nodes, node("s1", "small")), queues=(queue("train", "gpu", "small"),))
    request = request_for(group_plan(2, driver_label="small"), labeled)
    assert (request.driver_partition, request.partition) == ("small", "gpu")
    assert request.driver == Resources(1536, cores=1)


def test_the_room_of_a_busy_cluster_is_that_of_the_whole_nodes_unless_what_is_free_counts() -> None:
    request = request_for(group_plan(2), snapshot())
    busy = [node("g1", free=Resources()), node("g2")]
    assert capacity.count_executors(request, busy) == 4
    assert capacity.count_executors(request, busy, free=True) == 2


def test_a_whole_node_container_has_the_size_of_its_node() -> None:
    assert request_for(group_plan(isolation="whole_node"), snapshot()).executor == Resources(6144, cores=1, gpus=0)


def test_allocated_resources_are_a_shortfall() -> None:
    busy = snapshot(nodes=(*snapshot().nodes[:2], node("g2", free=Resources(1024, 3, 1))))
    train = queue("train", "gpu")
    assert capacity.shortfall(request_for(group_plan(2), snapshot()), snapshot(), train) == ""
    assert capacity.shortfall(request_for(group_plan(2), busy), busy, train) == ""
    assert capacity.shortfall(request_for(group_plan(4), busy), busy, train) == "2 of 4 containers have room"


def test_reserved_resources_are_a_shortfall() -> None:
    train = queue("train", "gpu", pending={"gpu": NODE + NODE})
    wanted = snapshot(queues=(train,))
    lacking = capacity.shortfall(request_for(group_plan(2), wanted), wanted, train)
    assert lacking == "other applications wait for the free resources"


def queue_waiting(path: str, limit: Resources, pending: Resources, leaf: bool = True) -> Queue:
    """Return a queue whose applications use one node, and wait for more."""
    return replace(
        queue(path.rpartition(".")[2], "gpu", pending={"gpu": pending}), path=path, leaf=leaf, max={"gpu": limit},
        used={"gpu": NODE},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "counted"),
    [
        (NODE, Resources()),
        (NODE + Resources(1024, 1, 1), Resources(1024, 1, 1)),
        (NODE + Resources(1024, 0, 0), Resources()),
        (NODE * 9, NODE * 5),
    ],
)
def test_a_queue_waits_in_vain_for_more_than_its_limit(limit: Resources, counted: Resources) -> None:
    """Its applications may wait for days, as those with dynamic allocation do: others need not wait for them."""
    other = queue_waiting("root.etl", limit, NODE * 5)
    assert snapshot(queues=(other,)).pending("gpu") == counted


def test_queues_wait_in_vain_for_more_than_the_limit_of_the_queue_above() -> None:
    above = queue_waiting("root.etl", NODE * 2, Resources(), leaf=False)
    inner = [queue_waiting(f"root.etl.{name}", NODE * 9, NODE) for name in ("days", "hours")]
    assert snapshot(queues=(above, *inner)).pending("gpu") == NODE
    assert snapshot(queues=tuple(inner)).pending("gpu") == NODE * 2


def test_a_queue_at_its_maximum_is_a_shortfall() -> None:
    train = queue("train", "gpu")
    used = replace(train, max={"gpu": NODE}, used={"gpu": Resources(1024, 1, 1)})
    lacking = capacity.shortfall(request_for(group_plan(2), snapshot()), snapshot(), used)
    assert lacking == "queue root.train has reached its capacity"


def test_a_driver_without_free_memory_on_any_node_is_a_shortfall() -> None:
    request = request_for(group_plan(2), snapshot())
    assert shortfall_beside(request, Resources(request.driver.memory - 1, 4)) == "the driver has no room"
    assert shortfall_beside(request, Resources(request.driver.memory, 1)) == ""


@pytest.mark.parametrize(("cores", "expected"), [(1, ""), (2, "the driver has no room")])
def test_cores_count_where_an_executor_has_several(cores: int, expected: str) -> None:
    request = request_for(group_plan(2, gpus_per_worker=0, cores_per_worker=cores), snapshot())
    assert shortfall_beside(request, Resources(request.driver.memory, 0)) == expected


@pytest.mark.parametrize(
    ("requested", "count"),
    [(Executors(), 1), (Executors(count=4, cores=2), 4), (Executors(count=8, min_count=2), 2)],
)
def test_a_stage_requests_its_executors_or_with_dynamic_allocation_the_fewest(requested: Executors, count: int) -> None:
    request = request_for(stage_plan(requested), snapshot())
    assert (request.count, request.executor.cores) == (count, requested.cores or 1)


def test_every_partition_with_gpus_has_a_pool() -> None:
    assert capacity.pools(snapshot()) == {
        "gpu": {"slots": 4, "description": "GPUs of nodes of partition gpu", "include_deferred": True}
    }
