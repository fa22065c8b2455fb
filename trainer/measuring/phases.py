"""Measure how long each phase of the loop takes: sums for each epoch, and spans of its first steps for the timeline."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.runs.worker_progress import ScriptProgress, TrainingProgress

if TYPE_CHECKING:
    from trainyard.trainer.measuring.device_times import DeviceTimes, Event, Span

MAX_SPANS = 4000
"""Spans of steps that a worker logs: each epoch may use a tenth of what remains. The others are summarized."""


@dataclass(slots=True)
class CurrentPhase:
    """What a worker is doing now, for its heartbeats.

    Attributes:
        phase: The phase.
        entered: A count of phases and of progress in them, which does not change while the worker hangs.
        epoch: The epoch, from 0.
        step: The number of global batches done in it.
        training: The progress of the training; None where this is not rank 0, or it has not begun.
        is_judged: Whether a worker without progress hangs: a script that has not reported any may be one that never
            does.
    """

    phase: Phase = Phase.START
    entered: int = 0
    epoch: int = 0
    step: int = 0
    training: TrainingProgress | ScriptProgress | None = None
    is_judged: bool = True

    def enter(self, phase: Phase) -> None:
        """Enter a phase."""
        self.phase = phase
        self.entered += 1

    def report_progress(self) -> None:
        """Show that the worker does not hang, although it stays in the phase."""
        self.entered += 1


class _HostPhase:
    """A context manager that reads the clocks twice; a generator would cost several times as much."""

    __slots__ = ("_phase", "_phases", "_start", "_wall")

    def __init__(self, phase: Phase, phases: Phases) -> None:
        self._phase, self._phases = phase, phases

    def __enter__(self) -> None:
        self._phases.drain()
        self._phases.current.enter(self._phase)
        self._phases.waited_ns = 0
        self._wall, self._start = time.time_ns(), time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        duration, waited = time.perf_counter_ns() - self._start, self._phases.waited_ns
        self._phases.add(self._phase, self._wall, duration - waited)


class _DataWait:
    """Wait on the host for the batch of a step on a GPU. The GPU may still compute the step before."""

    __slots__ = ("_phases", "_start", "_times")

    def __init__(self, phases: Phases, times: DeviceTimes) -> None:
        self._phases, self._times = phases, times

    def __enter__(self) -> None:
        self._phases.current.enter(Phase.DATA_WAIT)
        self._start = time.perf_counter_ns()

    def __exit__(self, error: object, *_: object) -> None:
        duration = time.perf_counter_ns() - self._start
        if error is None:
            self._phases.add_spans(self._times.collect())
            self._times.begin_step(duration)


class _DevicePhase:
    """A phase of a step on a GPU, between two of its events."""

    __slots__ = ("_phase", "_phases", "_start", "_times")
    _start: Event

    def __init__(self, phase: Phase, phases: Phases, times: DeviceTimes) -> None:
        self._phase, self._phases, self._times = phase, phases, times

    def __enter__(self) -> None:
        self._phases.current.enter(self._phase)
        self._start = self._times.start()

    def __exit__(self, error: object, *_: object) -> None:
        if error is None:  # after an error, the GPU may accept no more events
            self._times.end(self._phase, self._start)


class Phases:
    """Measure the phases of the loop, which do not overlap.

    Communication between workers overlaps the phases. The time in which a worker only waits for it is the phase "wait
    for communication"; waiting for other workers outside of steps is "wait for workers". Both are subtracted from the
    phase in which the worker waits.

    The phases of steps are times of the device that computes them: of the host's clock, or, with `device_times`, of a
    GPU, which are added after later steps.

    Args:
        log: The events of this worker; None to log nothing.
        current: The phase object that heartbeats read.

    Attributes:
        totals: The seconds of each phase since the beginning.
        device_times: Measures the steps on a GPU; None on a CPU.
    """

    def __init__(self, log: EventLog | None, current: CurrentPhase | None = None) -> None:
        self.log = log
        self.current = current or CurrentPhase()
        self.totals: dict[str, float] = defaultdict(float)
        self.waited_ns = 0
        self.device_times: DeviceTimes | None = None
        self._epoch: dict[str, float] = defaultdict(float)
        self._spans_left = MAX_SPANS
        self._epoch_spans_left = MAX_SPANS // 10
        self._omitted = 0
        self._omitted_from = self._omitted_to = 0

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Say that the body imports the user's code, whose libraries may keep other threads waiting."""
        before = self.current.phase
        self.current.enter(Phase.IMPORT)
        try:
            yield
        finally:
            self.current.enter(before)

    def measure(self, phase: Phase) -> _HostPhase | _DataWait | _DevicePhase:
        """Return a context manager whose duration is added to the phase."""
        times = self.device_times
        if times is None:
            return _HostPhase(phase, self)
        if phase is Phase.DATA_WAIT:
            return _DataWait(self, times)
        return _DevicePhase(phase, self, times) if times.in_step and phase.in_step else _HostPhase(phase, self)

    def on_communication(self, wall_ns: int, duration_ns: int, waited: bool) -> None:
        """Add a communication; `waited` is whether the worker did nothing else meanwhile.

        For a GPU, `duration_ns` is the time to launch it: events measure how long it takes.
        """
        if self.device_times and self.device_times.in_step:
            self.device_times.communicate(waited)
            return
        self._log_span(Phase.COMMUNICATION, wall_ns, duration_ns)
        if waited:
            self._add_wait(Phase.COMMUNICATION_WAIT, wall_ns, duration_ns)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Measure a body that only waits for other workers, outside of steps."""
        self.drain()
        wall, start = time.time_ns(), time.perf_counter_ns()
        yield
        self._add_wait(Phase.WORKER_WAIT, wall, time.perf_counter_ns() - start)

    def measure_data_wait(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield `batches`, and measure the wait for each as the phase "data wait"."""
        while True:
            with self.measure(Phase.DATA_WAIT):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def end_epoch(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call, and write the events so far in the background."""
        self.drain()
        self._log_omitted()
        seconds = dict(self._epoch)
        self._epoch.clear()
        self._epoch_spans_left = self._spans_left // 10
        if self.log:
            self.log.counter("seconds", **seconds)
            self.log.flush_in_background()
        return seconds

    def log_event(self, write: Callable[[EventLog], None]) -> None:
        """Call `write` with the event log, if there is one."""
        if self.log:
            write(self.log)

    def add(self, phase: Phase, wall_ns: int, duration_ns: int) -> None:
        """Add a phase that was measured elsewhere: wall-clock time of its start, and its duration."""
        self._epoch[phase.value] += duration_ns / 1e9
        self.totals[phase.value] += duration_ns / 1e9
        self._log_span(phase, wall_ns, duration_ns)

    def drain(self) -> None:
        """Wait until a GPU has finished all steps, and add their phases; what follows is not part of a step."""
        if self.device_times and self.device_times.in_step:
            self.add_spans(self.device_times.drain())

    def add_spans(self, spans: Iterable[Span]) -> None:
        """Add phases and communications that a GPU has finished."""
        for phase, start, duration in spans:
            if phase is Phase.COMMUNICATION:  # overlaps the phases
                self._log_span(phase, start, duration)
            else:
                self.add(phase, start, duration)

    def _add_wait(self, phase: Phase, wall_ns: int, duration_ns: int) -> None:
        self.waited_ns += duration_ns
        self.add(phase, wall_ns, duration_ns)

    def _log_span(self, phase: Phase, wall_ns: int, duration_ns: int) -> None:
        if not self.log:
            return
        if not phase.in_step:
            self._log_omitted()
            self.log.add(phase, wall_ns, duration_ns)
        elif self._epoch_spans_left:
            self._epoch_spans_left -= 1
            self._spans_left -= 1
            self.log.add(phase, wall_ns, duration_ns)
        else:
            self._omitted_from = min(self._omitted_from, wall_ns) if self._omitted else wall_ns
            self._omitted_to = max(self._omitted_to, wall_ns + duration_ns)
            self._omitted += 1

    def _log_omitted(self) -> None:
        """Log one span over the phases since the last call that have no span of their own."""
        if self.log and self._omitted:
            length = self._omitted_to - self._omitted_from
            self.log.add(Phase.STEPS, self._omitted_from, length, omitted=self._omitted)
        self._omitted = self._omitted_to = 0
