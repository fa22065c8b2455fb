"""Where a rank's time goes: sums for each epoch, and spans of its first steps for the timeline."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from trainyard.contract.events import EventLog

SPANS_AN_EPOCH = 400


class _Phase:
    """A context of two clock readings: a generator would cost several times as much."""

    __slots__ = ("_add", "_name", "_start", "_wall")

    def __init__(self, name: str, add: Callable[[str, int, int], None]) -> None:
        self._name, self._add = name, add

    def __enter__(self) -> None:
        self._wall, self._start = time.time_ns(), time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        self._add(self._name, self._wall, time.perf_counter_ns() - self._start)


class Phases:
    """Times the phases of the loop. `log` may be None, for a run that keeps no events."""

    def __init__(self, log: EventLog | None) -> None:
        self.log = log
        self._seconds: dict[str, float] = defaultdict(float)
        self._spans = 0

    def phase(self, name: str) -> _Phase:
        """A context whose time counts as `name`."""
        return _Phase(name, self._add)

    def communicated(self, wall_ns: int, duration_ns: int) -> None:
        """An allreduce, which overlaps the backward pass."""
        self._add("allreduce", wall_ns, duration_ns)

    def timed(self, shares: Iterator[Any]) -> Iterator[Any]:
        """`shares`, with the wait for each as the phase "data wait"."""
        while True:
            wall, start = time.time_ns(), time.perf_counter_ns()
            share = next(shares, None)
            if share is None:
                return
            self._add("data wait", wall, time.perf_counter_ns() - start)
            yield share

    def end_epoch(self) -> dict[str, float]:
        """Seconds spent in each phase since the last call; the event files are brought up to date."""
        seconds = dict(self._seconds)
        self._seconds.clear()
        self._spans = 0
        if self.log:
            self.log.counter("seconds", **seconds)
            self.log.flush()
        return seconds

    def note(self, write: Callable[[EventLog], None]) -> None:
        if self.log:
            write(self.log)

    def _add(self, name: str, wall_ns: int, duration_ns: int) -> None:
        self._seconds[name] += duration_ns / 1e9
        if self.log and self._spans < SPANS_AN_EPOCH:
            self._spans += 1
            self.log.add(name, wall_ns, duration_ns)
