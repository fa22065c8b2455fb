"""How many containers have room: against trying all ways, and against what is free."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests.plugins.clusters import NODE, gang, node, queue, snapshot
from trainyard.planning.plan import Plan
from trainyard.yarn import capacity
from trainyard.yarn.capacity import ResourceRequest
from trainyard.yarn.snapshot import ClusterSnapshot, Node, Resources

containers = st.builds(Resources, st.integers(1, 8), st.integers(1, 3), st.integers(0, 2))
rooms = st.lists(st.builds(Resources, st.integers(0, 16), st.integers(0, 6), st.integers(0, 4)), max_size=4)


def asked(plan: Plan, at: ClusterSnapshot) -> ResourceRequest:
    found = at.queue(plan.queue)
    assert found
    return capacity.resource_request(plan, found, *capacity.containers(plan, at, found))


def by_trying(demand: ResourceRequest, nodes: list[Node]) -> int:
    """The most executors over every way to spread them and the driver."""
    drivers = nodes if demand.driver_partition == demand.partition else [None]
    best = 0
    for driver, counts in product(drivers, product(range(17), repeat=len(nodes))):
        taken = zip(nodes, counts, strict=True)
        held = [demand.executor * count + (demand.driver if at is driver else Resources()) for at, count in taken]
        if all(want.within(at.total) for want, at in zip(held, nodes, strict=True)):
            best = max(best, sum(counts))
    return best


@given(containers, rooms.filter(lambda found: len(found) <= 2))
def test_executors_have_as_much_room_as_trying_finds(executor: Resources, found: list[Resources]) -> None:
    nodes = [node(str(number), total=total) for number, total in enumerate(found)]
    demand = ResourceRequest(Resources(2, 1), executor, 1, driver_partition="", partition="gpu")
    assert capacity.executors(demand, nodes) == by_trying(demand, nodes)


@given(containers, rooms.filter(lambda found: len(found) <= 2))
def test_beside_the_driver_too(executor: Resources, found: list[Resources]) -> None:
    nodes = [node(str(number), total=total) for number, total in enumerate(found)]
    demand = ResourceRequest(Resources(2, 1), executor, 1, driver_partition="gpu", partition="gpu")
    assert capacity.executors(demand, nodes) == by_trying(demand, nodes)


def test_a_plan_asks_for_what_yarn_will_grant() -> None:
    demand = asked(gang(4, workers_per_container=2), snapshot())
    assert demand.executor == Resources(3072, cores=2, gpus=2)
    assert demand.count == 2


def test_a_container_that_takes_its_node_is_as_large() -> None:
    assert asked(gang(isolation="whole_node"), snapshot()).executor == Resources(6144, cores=1, gpus=0)


def test_room_that_is_in_use_is_waited_for() -> None:
    busy = snapshot(nodes=(*snapshot().nodes[:2], node("g2", free=Resources(1024, 3, 1))))
    train = queue("train", "gpu")
    assert capacity.shortfall(asked(gang(2), snapshot()), snapshot(), train) == ""
    assert capacity.shortfall(asked(gang(2), busy), busy, train) == ""
    assert capacity.shortfall(asked(gang(4), busy), busy, train) == "2 of 4 containers have room"


def test_room_that_others_wait_for_is_not_free() -> None:
    train = queue("train", "gpu", pending={"gpu": NODE + NODE})
    wanted = snapshot(queues=(train,))
    lacking = capacity.shortfall(asked(gang(2), wanted), wanted, train)
    assert lacking == "what is free is waited for by others already"


def test_a_queue_that_has_used_its_share_is_waited_for() -> None:
    train = queue("train", "gpu")
    used = replace(train, most={"gpu": NODE}, used={"gpu": Resources(1024, 1, 1)})
    lacking = capacity.shortfall(asked(gang(2), snapshot()), snapshot(), used)
    assert lacking == "queue root.train has used up its share"


def test_there_is_a_pool_for_the_gpus_of_each_partition() -> None:
    assert capacity.pools(snapshot()) == {
        "gpu": {"slots": 4, "description": "GPUs of nodes of partition gpu", "include_deferred": True}
    }
