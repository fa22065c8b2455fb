"""The sensor that waits for room, in its worker."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import UnavailableError
from trainyard.sensors import CapacitySensor


def test_a_failover_neither_fails_the_sensor_nor_starts_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [UnavailableError("no active ResourceManager answers"), None]

    def make_trigger(self: CapacitySensor, context: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(CapacitySensor, "_make_trigger", make_trigger)
    sensor = CapacitySensor(task_id="room", stage="train", deferrable=False)
    assert [sensor.poke({}), sensor.poke({})] == [False, True]  # type: ignore[typeddict-item]
