"""Readings of a GPU. Reading a real one needs a machine with a GPU."""

from __future__ import annotations

import math
import threading
from pathlib import Path

import pytest
import torch

from trainyard.schemas.runs import events
from trainyard.schemas.runs.events import EventLog
from trainyard.trainer.measuring.gpu_usage import GpuMonitor, build_reader, is_due
from trainyard.trainer.measuring.phases import Phases


def test_readings_are_logged_and_summarized(tmp_path: Path) -> None:
    log, enough = EventLog(str(tmp_path), "train", "worker 0"), threading.Event()
    readings = iter([(0.5, 3.0), (1.0, 2.0)])

    def read() -> tuple[float, float]:
        reading = next(readings)
        if reading == (1.0, 2.0):
            enough.set()
        return reading

    with GpuMonitor(read, Phases(log)) as monitor:
        assert enough.wait(60)
    log.flush()
    assert monitor.usage == {"gpu_utilization": pytest.approx(0.75), "gpu_memory_gib": 3.0}
    assert [e["args"]["utilization"] for e in events.read(str(tmp_path)) if e["name"] == "gpu"] == [0.5, 1.0]


def test_five_days_have_some_thousand_events():
    now, logged, count = 0.0, -math.inf, 0
    while now < 5 * 86_400:
        if is_due(now, logged):
            logged, count = now, count + 1
            assert now <= 600 or count > 600, "each of the first ten minutes"
        now += 1
    assert count < 5_000


def test_a_cpu_is_not_read() -> None:
    assert build_reader(torch.device("cpu")) is None


def test_a_gpu_that_cannot_be_read_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    assert build_reader(torch.device("cuda", 63)) is None
    assert "GPU usage is not measured" in capsys.readouterr().out
