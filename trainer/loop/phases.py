"""Where a rank's time goes: sums for each epoch, and spans of its first steps for the timeline."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trainyard.schemas.events import EventLog

SPANS = 4000
"""Spans of a rank that are kept: an epoch's first steps take a tenth of what the epochs before have left."""
COMMUNICATION_WAIT = "wait for communication"
COMMUNICATION = "communication"
WAIT = "wait for workers"


@dataclass(slots=True)
class CurrentPhase:
    """What a rank is doing now, for whoever watches it; `entered` counts phases, and stands still when it hangs."""

    phase: str = "start"
    entered: int = 0
    epoch: int = 0
    step: int = 0

    def enter(self, phase: str) -> None:
        self.phase = phase
        self.entered += 1


class _Phase:
    """A context of two clock readings: a generator would cost several times as much."""

    __slots__ = ("_name", "_phases", "_start", "_wall")

    def __init__(self, name: str, phases: Phases) -> None:
        self._name, self._phases = name, phases

    def __enter__(self) -> None:
        self._phases.here.enter(self._name)
        self._phases.waited_ns = 0
        self._wall, self._start = time.time_ns(), time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        duration, waited = time.perf_counter_ns() - self._start, self._phases.waited_ns
        self._phases.add(self._name, self._wall, duration - waited)


class Phases:
    """Times the phases of the loop, which do not overlap; `log` may be None, for a run that keeps no events.

    Exchanges between ranks go on beside the phases. What a rank waits for one is the phase "wait for communication", what it
    waits for the others outside of steps "wait for workers"; both are taken from the phase in which it waits.
    `totals` are the seconds in each phase since the beginning.
    """

    def __init__(self, log: EventLog | None, here: CurrentPhase | None = None) -> None:
        self.log = log
        self.here = here or CurrentPhase()
        self.totals: dict[str, float] = defaultdict(float)
        self.waited_ns = 0
        self._epoch: dict[str, float] = defaultdict(float)
        self._left = SPANS
        self._spans = SPANS // 10

    def phase(self, name: str) -> _Phase:
        """A context whose time counts as `name`."""
        return _Phase(name, self)

    def on_communication(self, wall_ns: int, duration_ns: int, waited: bool) -> None:
        """An exchange; `waited` says whether the rank did nothing else meanwhile."""
        self._span(COMMUNICATION, wall_ns, duration_ns)
        if waited:
            self._wait(COMMUNICATION_WAIT, wall_ns, duration_ns)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A context in which the rank does nothing but wait for the others, outside of steps."""
        wall, start = time.time_ns(), time.perf_counter_ns()
        yield
        self._wait(WAIT, wall, time.perf_counter_ns() - start)

    def timed(self, shares: Iterator[Any]) -> Iterator[Any]:
        """`shares`, with the wait for each as the phase "data wait"."""
        while True:
            with self.phase("data wait"):
                share = next(shares, None)
            if share is None:
                return
            yield share

    def end_epoch(self) -> dict[str, float]:
        """Seconds spent in each phase since the last call; the event file catches up."""
        seconds = dict(self._epoch)
        self._epoch.clear()
        self._spans = self._left // 10
        if self.log:
            self.log.counter("seconds", **seconds)
            self.log.flush_in_background()
        return seconds

    def note(self, write: Callable[[EventLog], None]) -> None:
        if self.log:
            write(self.log)

    def add(self, name: str, wall_ns: int, duration_ns: int) -> None:
        """A phase that was timed elsewhere: wall clock of its start, and its length."""
        self._epoch[name] += duration_ns / 1e9
        self.totals[name] += duration_ns / 1e9
        self._span(name, wall_ns, duration_ns)

    def _wait(self, name: str, wall_ns: int, duration_ns: int) -> None:
        self.waited_ns += duration_ns
        self.add(name, wall_ns, duration_ns)

    def _span(self, name: str, wall_ns: int, duration_ns: int) -> None:
        if self.log and self._spans:
            self._spans -= 1
            self._left -= 1
            self.log.add(name, wall_ns, duration_ns)
