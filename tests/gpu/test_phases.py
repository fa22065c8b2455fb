"""The phases of a training are those of the device, and the bottleneck that follows from them is right."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gpu import recipes
from tests.gpu.recipes import Busy
from trainyard.schemas.runs import events
from trainyard.schemas.runs.events import EventLog
from trainyard.trainer.loop.fit import FitResult, fit
from trainyard.trainer.measuring.phases import Phases

pytestmark = [pytest.mark.full, pytest.mark.slow]

BATCH_SIZE = 50
STEPS = 2 * 10
NOT_BUSY = {"milliseconds": 0}
WAIT = 0.05


@pytest.fixture(autouse=True)
def warm(device: str, batches: str, tmp_path: Path) -> None:
    """Load the kernels of a GPU, which would be a part of the first step."""
    fit(f"{recipes.__name__}:busy", dataset=batches, model=str(tmp_path / "warm"), epochs=1, recipe_params=NOT_BUSY)
    Busy.measure_seconds(0)


def train(batches: str, folder: Path, phases: Phases, milliseconds: int, wait: float = 0.0) -> FitResult:
    return fit(
        f"{recipes.__name__}:busy", dataset=batches, model=str(folder / "model"), batch_size=BATCH_SIZE, epochs=2,
        recipe_params={"milliseconds": milliseconds, "wait": wait}, phases=phases,
        checkpoints=str(folder / "checkpoints"), checkpoint_steps=7,
    )  # fmt: skip


def test_the_forward_pass_takes_as_long_as_the_device_computes(device: str, batches: str, tmp_path: Path) -> None:
    began = time.perf_counter()
    log = EventLog(str(tmp_path), "train", "worker 0")
    fitted = train(batches, tmp_path, Phases(log), 20)
    passed = time.perf_counter() - began
    seconds = fitted.phase_seconds[0].seconds
    assert Busy.passes == STEPS
    computed = Busy.measure_seconds(20)
    assert 0.999 * computed <= seconds["forward"]
    assert sum(seconds.values()) <= passed, "phases do not overlap"
    assert ("copy" in seconds) == (device == "cuda")
    assert str(fitted.bottleneck).startswith("Compute-bound")
    log.flush()
    spans = [event for event in events.read(str(tmp_path)) if event["ph"] == "X"]
    assert sum(span["name"] == "forward" for span in spans) == STEPS
    logged = sum(span["dur"] for span in spans if span["name"] == "forward") / 1e6
    assert logged == pytest.approx(seconds["forward"], rel=0.01)


def test_waiting_for_slow_batches_is_measured(
    device: str, batches: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is prepared only when the host waits for it, and the device has almost nothing to do meanwhile."""

    class Requests(Phases):
        def measure_data_wait(self, batches: Iterator[Any]) -> Iterator[Any]:
            return super().measure_data_wait(self.request(batches))

        def request(self, batches: Iterator[Any]) -> Iterator[Any]:
            while True:
                Busy.requests = (Busy.requests or 0) + 1
                if (batch := next(batches, None)) is None:
                    Busy.requests -= 1  # otherwise the next epoch would have a batch that is prepared before
                    return
                yield batch

    monkeypatch.setattr(Busy, "requests", 0)
    fitted = train(batches, tmp_path, Requests(None), 0, wait=WAIT)
    idle = 0.8 if device == "cuda" else 1.0  # a GPU may still compute the step before
    assert fitted.phase_seconds[0].seconds["data wait"] >= idle * STEPS * WAIT
    if device == "cuda":  # a CPU also computes for others
        assert str(fitted.bottleneck).startswith("Input-bound"), fitted.bottleneck


def test_batches_that_are_prepared_while_the_device_computes_are_not_waited_for(
    device: str, batches: str, tmp_path: Path
) -> None:
    fitted = train(batches, tmp_path, Phases(None), 60, wait=0.01)
    assert str(fitted.bottleneck).startswith("Compute-bound"), fitted.bottleneck


@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_the_host_does_not_wait_for_each_step(device: str, batches: str, tmp_path: Path) -> None:
    """With a synchronization a step, the host would enter a step only when the device has finished the one before."""
    behind = []

    class Ahead(Phases):
        def phase(self, name: str):  # type: ignore[no-untyped-def]
            if name == "copy":
                behind.append(not torch.cuda.current_stream().query())
            return super().phase(name)

    fit(
        f"{recipes.__name__}:busy", dataset=batches, model=str(tmp_path / "model"), batch_size=BATCH_SIZE, epochs=1,
        recipe_params={"milliseconds": 30}, phases=Ahead(None),
    )  # fmt: skip
    assert sum(behind) >= len(behind) - 2, "all but the first, and the one after the loss is read"


@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_the_usage_of_the_gpu_is_measured_where_nvml_is(
    device: str, batches: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted = train(batches, tmp_path, Phases(None), 100)
    if importlib.util.find_spec("pynvml"):
        total = torch.cuda.get_device_properties(0).total_memory / 2**30
        assert 0 < fitted.gpu["gpu_utilization"] <= 1 and 0 < fitted.gpu["gpu_memory_gib"] <= total
    else:
        assert not fitted.gpu and "Install nvidia-ml-py" in capsys.readouterr().out
