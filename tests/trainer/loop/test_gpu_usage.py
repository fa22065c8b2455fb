"""How busy a GPU is: the readings that come of it. Reading a real one needs a machine that has one."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from trainyard.schemas import events
from trainyard.schemas.events import EventLog
from trainyard.trainer.loop.gpu_usage import GpuMonitor, reader
from trainyard.trainer.loop.phases import Phases


def test_readings_are_events_and_their_mean_and_maximum_figures(tmp_path: Path) -> None:
    log, enough = EventLog(str(tmp_path), "train", "rank 0"), threading.Event()
    readings = iter([(0.5, 3.0), (1.0, 2.0)])

    def read() -> tuple[float, float]:
        found = next(readings)
        if found == (1.0, 2.0):
            enough.set()
        return found

    with GpuMonitor(read, Phases(log)) as gauge:
        assert enough.wait(60)
    log.flush()
    assert gauge.figures == {"gpu_utilization": pytest.approx(0.75), "gpu_memory_gib": 3.0}
    assert [e["args"]["utilization"] for e in events.read(str(tmp_path)) if e["name"] == "gpu"] == [0.5, 1.0]


def test_a_processor_is_not_read() -> None:
    assert reader(torch.device("cpu")) is None


def test_a_gpu_that_does_not_answer_is_said_once_and_training_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert reader(torch.device("cuda", 63)) is None
    assert "no figures of the GPU" in capsys.readouterr().out
