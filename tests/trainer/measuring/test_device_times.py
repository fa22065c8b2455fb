"""The times of steps on a GPU, here one that is computed; `tests/gpu` measures a real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.schemas.runs import events
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.phases import Phase
from trainyard.trainer.measuring.device_times import DeviceTimes, Event, Span, Step, measure_step
from trainyard.trainer.measuring.phases import Phases

MS = 1_000_000
LAUNCH = 10_000
"""The time that the host takes to launch kernels."""


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu, self.at = gpu, 0

    def query(self) -> bool:
        return self.at <= self._gpu.now

    def synchronize(self) -> None:
        self._gpu.waits += not self.query()
        self._gpu.now = max(self._gpu.now, self.at)

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.query() and end.query(), "torch raises an error for an event that the GPU has not passed"
        return (end.at - self.at) / MS


class FakeGpu:
    """A GPU with a stream for the loop and one for callbacks of communication; the host's clock is `now`."""

    def __init__(self) -> None:
        self.now = self.busy_until = self.communicating_until = 0
        self.built = self.waits = 0
        self.in_callback = False

    def launch(self, duration: int) -> None:
        self.now += LAUNCH
        self.busy_until = max(self.now, self.busy_until) + duration

    def reduce(self, duration: int) -> None:
        """Communicate when the GPU has computed what was launched."""
        self.communicating_until = max(self.now, self.busy_until, self.communicating_until) + duration

    def record(self, event: Event | None) -> Event:
        return self._record(event, self.busy_until)

    def record_current(self, event: Event | None) -> Event:
        return self._record(event, self.communicating_until if self.in_callback else self.busy_until)

    def is_current(self) -> bool:
        return not self.in_callback

    def _record(self, event: Event | None, busy_until: int) -> Event:
        self.built += event is None
        recorded = event or FakeEvent(self)
        assert isinstance(recorded, FakeEvent)
        recorded.at = max(self.now, busy_until)
        return recorded


def run_step(times: DeviceTimes, gpu: FakeGpu, wait: int, **phases: int) -> list[Span]:
    """Wait for a batch, launch the phases, and return what is known of former steps by then."""
    gpu.now += wait
    spans = times.collect()
    times.begin_step(wait)
    for name, duration in phases.items():
        start = times.start()
        gpu.launch(duration)
        times.end(name, start)
    return spans


def total(spans: Iterable[Span]) -> dict[str, float]:
    """Return the milliseconds of each phase."""
    sums = Counter[str]()
    for span in spans:
        sums[span.phase] += span.duration
    return {name: duration / MS for name, duration in sums.items()}


def test_a_phase_is_the_time_of_the_gpu_and_not_of_the_launch() -> None:
    gpu = FakeGpu()
    times = DeviceTimes(gpu)
    run_step(times, gpu, 0, forward=5 * MS, backward=10 * MS)
    assert gpu.now < MS, "the host has only launched them"
    assert total(times.drain()) == pytest.approx({"data wait": 0, "forward": 5.01, "backward": 10})


def test_waiting_for_data_while_the_gpu_computes_costs_nothing() -> None:
    gpu = FakeGpu()
    times = DeviceTimes(gpu)
    for _ in range(3):
        run_step(times, gpu, 4 * MS, forward=10 * MS)
    assert total(times.drain())["data wait"] == pytest.approx(4), "the first batch"


def test_waiting_for_data_counts_from_when_the_gpu_is_idle() -> None:
    gpu = FakeGpu()
    times = DeviceTimes(gpu)
    run_step(times, gpu, 0, forward=10 * MS)
    run_step(times, gpu, 14 * MS, forward=10 * MS)
    assert total(times.drain())["data wait"] == pytest.approx(4, abs=0.1)


def test_an_idle_gpu_whose_host_did_not_wait_for_data_is_not_input_bound() -> None:
    gpu = FakeGpu()
    times = DeviceTimes(gpu)
    run_step(times, gpu, 0, forward=MS)
    gpu.now += 50 * MS  # a slow callback of the user
    run_step(times, gpu, 0, forward=MS)
    assert total(times.drain())["data wait"] == 0


def test_steps_are_read_when_the_gpu_has_finished_them_and_nothing_waits_until_then() -> None:
    gpu = FakeGpu()
    times = DeviceTimes(gpu)
    assert run_step(times, gpu, 0, forward=10 * MS) == []
    assert run_step(times, gpu, MS, forward=10 * MS) == []
    gpu.now = gpu.busy_until
    assert total(run_step(times, gpu, 0, forward=10 * MS)) == {"data wait": 0, "forward": pytest.approx(10, abs=0.1)}
    assert gpu.waits == 0
    assert total(times.drain())["forward"] == pytest.approx(20, abs=0.1) and gpu.waits == 1
    assert not times.in_step and times.drain() == []


def test_events_are_used_again() -> None:
    gpu = FakeGpu()
    times = DeviceTimes(gpu)
    for _ in range(1000):
        run_step(times, gpu, 0, forward=MS, backward=MS)
        gpu.now = gpu.busy_until
    assert len(times.drain()) == 2 * 3, "the other steps were read before"
    assert gpu.built < 20


def test_a_phase_begins_with_the_end_of_the_one_before() -> None:
    gpu = FakeGpu()
    times = DeviceTimes(gpu)
    run_step(times, gpu, 0, copy=MS, forward=MS, backward=MS, optimizer=MS)
    assert gpu.built == 1 + 5, "the origin, and an event more than phases"


def test_communication_beside_the_backward_pass_is_not_waited_for() -> None:
    gpu = FakeGpu()
    times = DeviceTimes(gpu)
    times.begin_step(0)
    start = times.start()
    gpu.launch(4 * MS)
    gpu.reduce(3 * MS)
    gpu.in_callback = True
    times.communicate(False)
    gpu.in_callback = False
    gpu.launch(10 * MS)
    times.end("backward", start)
    sums = total(times.drain())
    assert sums == pytest.approx({"data wait": 0, "communication": 3, "backward": 14.01})


def test_the_communication_of_the_last_gradients_is_subtracted_from_the_backward_pass() -> None:
    gpu = FakeGpu()
    times = DeviceTimes(gpu)
    times.begin_step(0)
    start = times.start()
    gpu.launch(4 * MS)
    gpu.reduce(3 * MS)
    gpu.in_callback = True
    times.communicate(True)
    gpu.in_callback = False
    gpu.busy_until = gpu.communicating_until  # DDP waits for it
    times.end("backward", start)
    sums = total(times.drain())
    assert sums == pytest.approx({"data wait": 0, "communication": 3, "wait for communication": 3, "backward": 4.01})


def test_communication_between_steps_began_with_the_end_of_the_last_phase() -> None:
    gpu = FakeGpu()
    times = DeviceTimes(gpu)
    run_step(times, gpu, 0, optimizer=2 * MS)
    gpu.launch(7 * MS)  # averaging
    times.communicate(True)
    run_step(times, gpu, MS, optimizer=2 * MS)
    sums = total(times.drain())
    assert sums == pytest.approx(
        {"data wait": 0, "communication": 7, "wait for communication": 7, "optimizer": 4}, abs=0.1
    )


TIMES = st.integers(0, 1000)


@given(st.lists(st.tuples(TIMES, st.integers(0, 50), TIMES), max_size=6), TIMES, st.none() | TIMES)
def test_phases_are_never_negative_and_fit_into_the_step(
    parts: list[tuple[int, int, int]], data_wait: int, idle: int | None
) -> None:
    """Phases one after the other, each of which ends with a wait for communication."""
    step, now = Step[int](data_wait, None if idle is None else 10_000 - idle), 10_000
    for compute, gap, wait in parts:
        step.phases.append((Phase.FORWARD, now, now + compute + wait))
        step.communications.append((now + compute, now + compute + wait, True))
        now += compute + wait + gap
    spans = [span for span in measure_step(step) if span.phase != "communication"]
    assert all(span.duration >= 0 for span in spans)
    available = now - 10_000 + (data_wait if idle is None else min(idle, data_wait))
    assert sum(span.duration for span in spans) <= available


def test_the_phases_of_the_loop_are_those_of_the_gpu(tmp_path: Path) -> None:
    gpu, log = FakeGpu(), EventLog(str(tmp_path), "train", "worker 0")
    phases = Phases(log)
    phases.device_times = DeviceTimes(gpu)
    with phases.measure(Phase.SET_UP):
        pass
    for _ in phases.measure_data_wait(iter(range(4))):
        for phase in (Phase.COPY, Phase.FORWARD, Phase.BACKWARD):
            with phases.measure(phase):
                assert phases.current.phase is phase
                gpu.launch(20 * MS)
    assert "forward" not in phases.totals, "the GPU has not finished a step"
    with phases.measure(Phase.VALIDATE):
        assert phases.totals["forward"] == pytest.approx(0.08), "a phase outside of steps begins when they are finished"
    seconds = phases.end_epoch()
    assert seconds["forward"] == pytest.approx(0.08) and seconds["validate"] < 0.08
    log.flush()
    spans = [event for event in events.read(str(tmp_path)) if event["ph"] == "X" and event["name"] != "set up"]
    steps = [span for span in spans if span["name"] != "validate"]
    assert [span["name"] for span in steps[:4]] == ["data wait", "copy", "forward", "backward"]
    for span, following in pairwise(steps):
        assert span["ts"] + span["dur"] <= following["ts"] + 1, "spans do not overlap on the timeline"


def test_an_epoch_ends_when_the_gpu_has_finished_it() -> None:
    gpu, phases = FakeGpu(), Phases(None)
    phases.device_times = DeviceTimes(gpu)
    for _ in phases.measure_data_wait(iter(range(3))):
        with phases.measure(Phase.FORWARD):
            gpu.launch(MS)
    assert phases.end_epoch()["forward"] == pytest.approx(0.003, rel=0.1)
    assert phases.end_epoch() == {}


def test_no_event_is_recorded_after_an_error() -> None:
    """The GPU may accept none: the error of the step is the one to report."""
    gpu, phases = FakeGpu(), Phases(None)
    phases.device_times = DeviceTimes(gpu)
    batches = phases.measure_data_wait(iter(range(1)))
    next(batches)
    with pytest.raises(RuntimeError, match="device-side assert"), phases.measure(Phase.FORWARD):
        built = gpu.built
        raise RuntimeError("device-side assert triggered")
    assert gpu.built == built


def test_communication_outside_of_steps_is_measured_by_the_host() -> None:
    phases = Phases(None)
    phases.device_times = DeviceTimes(FakeGpu())
    phases.on_communication(0, 5 * MS, True)
    assert phases.totals == {"wait for communication": pytest.approx(0.005)}
