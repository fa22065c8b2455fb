"""The trigger that waits for room: however many wait, the cluster is asked once, and other triggers are not delayed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.resource_managers import Answer, application, applications, serve, write_yarn_site
from tests.plugins.snapshots import NODE, node, queue, snapshot
from trainyard.errors import TrainyardError
from trainyard.triggers.capacity import CapacityTrigger
from trainyard.triggers.poller import get_poller
from trainyard.yarn import cluster
from trainyard.yarn.capacity import ResourceRequest
from trainyard.yarn.snapshot import ClusterSnapshot, Resources

SENSORS = 200
REQUEST = asdict(ResourceRequest(Resources(1024, 1), Resources(2048, 1), 1, driver_partition="gpu", partition="gpu"))
FULL = snapshot(nodes=(node("g1", free=Resources()),), queues=(queue("train", "gpu"),))
EMPTY = snapshot(nodes=(node("g1", total=NODE),), queues=(queue("train", "gpu"),))


def trigger(poll: float = 60.0) -> CapacityTrigger:
    return CapacityTrigger("train", REQUEST, poll)


async def first(waiting: CapacityTrigger) -> Any:
    return (await anext(aiter(waiting.run()))).payload


def test_sensors_that_wait_at_once_share_one_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[ClusterSnapshot] = []

    def take() -> ClusterSnapshot:
        taken.append(EMPTY)
        return EMPTY

    async def wait_for_all() -> list[Any]:
        return await asyncio.gather(*(first(trigger()) for _ in range(SENSORS)))

    monkeypatch.setattr(cluster, "take_snapshot", take)
    assert asyncio.run(wait_for_all()) == [{"room": "there is room for 1 containers"}] * SENSORS
    assert len(taken) == 1


def test_a_sensor_waits_until_there_is_room_whatever_the_answers_are(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [FULL, TrainyardError("there is no valid ticket"), FULL, EMPTY]

    def take() -> ClusterSnapshot:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    monkeypatch.setattr(cluster, "take_snapshot", take)
    assert asyncio.run(first(trigger(poll=0.01))) == {"room": "there is room for 1 containers"}
    assert answers == []


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The id of an application that runs."""
    entry = application(1, applicationTags="tag,trainyard")
    with serve(lambda *_: Answer(applications(entry))) as server:
        write_yarn_site(tmp_path, monkeypatch, server)
        yield entry["id"]


def test_applications_are_listed_while_snapshots_are_slow(listed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_answered = threading.Event()

    def take() -> ClusterSnapshot:
        is_answered.wait(60)
        return EMPTY

    async def find_beside_sensors() -> str:
        sensors = [asyncio.create_task(first(trigger())) for _ in range(SENSORS)]
        await asyncio.sleep(0)
        found, _ = await asyncio.wait_for(get_poller().find(listed, "tag", 60.0), 30)
        is_answered.set()
        for sensor in sensors:
            sensor.cancel()
            with suppress(asyncio.CancelledError):
                await sensor
        assert found
        return found.id

    monkeypatch.setattr(cluster, "take_snapshot", take)
    assert asyncio.run(find_beside_sensors()) == listed


def test_a_trigger_is_recreated_from_its_fields() -> None:
    path, fields = trigger().serialize()
    assert path == "trainyard.triggers.capacity.CapacityTrigger"
    assert fields == {"queue": "train", "request": REQUEST, "poll": 60.0}
