"""Measure the phases of steps on a GPU with CUDA events.

The host only launches the kernels of a step, and runs ahead of the GPU: its clock measures launches. An event is a time
of the GPU. It is recorded without waiting, and read after a later step, when the GPU has passed it. `measure_step` is
pure arithmetic on these times.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch

from trainyard.schemas.runs.phases import Phase

T = TypeVar("T")


class Event(Protocol):
    """A time of the GPU, as a `torch.cuda.Event` is."""

    def query(self) -> bool:
        """Return whether the GPU has passed it."""

    def synchronize(self) -> None:
        """Wait until the GPU has passed it."""

    def elapsed_time(self, end: Any) -> float:
        """Return the milliseconds from this event to `end`; the GPU must have passed both."""


class Stream(Protocol):
    """Where events are recorded."""

    def record(self, event: Event | None) -> Event:
        """Record an event, a new one if it is None, behind what the training loop has launched."""

    def record_current(self, event: Event | None) -> Event:
        """Record an event behind what the caller has launched, which may be the callback of a communication."""

    def is_current(self) -> bool:
        """Return whether the caller launches where the training loop does."""


class CudaStream:
    """The stream of a GPU on which the training loop computes: the current one when this is created."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.current_stream(device)

    def record(self, event: Event | None) -> Event:
        """Record an event on the stream."""
        return self._record(event, self._stream)

    def record_current(self, event: Event | None) -> Event:
        """Record an event on the caller's stream."""
        return self._record(event, torch.cuda.current_stream(self._stream.device))

    def is_current(self) -> bool:
        """Return whether the stream is the caller's."""
        return bool(torch.cuda.current_stream(self._stream.device) == self._stream)

    def _record(self, event: Any, stream: Any) -> Event:
        event = event or torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event  # type: ignore[no-any-return]


class Span(NamedTuple):
    """A phase: its start and its duration in nanoseconds."""

    phase: Phase
    start: int
    duration: int


@dataclass
class Step(Generic[T]):
    """The times of a step, as events or as nanoseconds.

    Attributes:
        data_wait: The nanoseconds for which the host waited for the batch.
        previous: The end of the step before; None if the GPU was idle.
        phases: Each phase with its start and end.
        communications: The start and end of each communication, and whether the GPU had nothing else to compute.
    """

    data_wait: int
    previous: T | None = None
    phases: list[tuple[Phase, T, T]] = field(default_factory=list)
    communications: list[tuple[T, T, bool]] = field(default_factory=list)


def measure_step(step: Step[int]) -> Iterator[Span]:
    """Yield the phases of a step, which do not overlap, and its communications.

    The host's wait for data counts as far as the GPU was idle before the step: until then it computed the step before.
    Waiting for communication is subtracted from the phases that it is in.
    """
    waits = [(start, end) for start, end, waited in step.communications if waited]
    if step.phases:
        first = min(start for _, start, _ in step.phases)
        idle = step.data_wait if step.previous is None else max(first - step.previous, 0)
        wait = min(step.data_wait, idle)
        yield Span(Phase.DATA_WAIT, first - wait, wait)
    for phase, start, end in step.phases:
        waited = sum(max(min(end, wait_end) - max(start, wait_start), 0) for wait_start, wait_end in waits)
        yield Span(phase, start, max(end - start - waited, 0))
    for start, end, waited_only in step.communications:
        yield Span(Phase.COMMUNICATION, start, max(end - start, 0))
        if waited_only:
            yield Span(Phase.COMMUNICATION_WAIT, start, max(end - start, 0))


class DeviceTimes:
    """The times of the steps that a GPU has not finished yet.

    `begin_step` begins a step, `start` and `end` enclose each of its phases, and `communicate` ends a communication.
    `collect` returns the phases of finished steps without waiting, `drain` waits for all steps.

    Args:
        stream: Where events are recorded.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._unused: list[Event] = []
        self._steps: deque[tuple[Step[Event], list[Event]]] = deque()
        self._last: Event | None = None
        self._origin: tuple[Event, int] | None = None

    @property
    def in_step(self) -> bool:
        """Whether a step has begun since the last `drain`."""
        return bool(self._steps)

    def begin_step(self, data_wait: int) -> None:
        """Begin a step; the host waited `data_wait` nanoseconds for its batch."""
        if self._origin is None:  # the GPU is idle, so that this does not wait
            event = self._stream.record(None)
            event.synchronize()
            self._origin = event, time.time_ns()
        self._steps.append((Step(data_wait, self._last), []))

    def start(self) -> Event:
        """Return the start of a phase, which is the end of the one before it in the step."""
        return self._last if self._last and self._steps[-1][0].phases else self._record()

    def end(self, phase: Phase, start: Event) -> None:
        """End a phase."""
        self._steps[-1][0].phases.append((phase, start, self._record()))

    def communicate(self, waited: bool) -> None:
        """End a communication; `waited` is whether the GPU had nothing else to compute.

        In a callback, which has a stream of its own, it began when the GPU had computed what was launched until now;
        elsewhere with the last phase.
        """
        step, events = self._steps[-1]
        if self._stream.is_current():
            start = self._last or self._record()
            end = self._record()
        else:
            start = self._stream.record(self._pop_unused())
            end = self._stream.record_current(self._pop_unused())
            events += [start, end]
        step.communications.append((start, end, waited))

    def collect(self) -> list[Span]:
        """Return the phases of the steps that the GPU has finished, with the wall-clock times of their starts.

        The current step is not among them.
        """
        spans: list[Span] = []
        while len(self._steps) > 1 and all(event.query() for event in _list_last(self._steps[0][0])):
            spans += self._read()
        return spans

    def drain(self) -> list[Span]:
        """Wait for all steps, and return their phases. The GPU is idle afterwards."""
        spans: list[Span] = []
        while self._steps:
            for event in _list_last(self._steps[0][0]):
                event.synchronize()
            spans += self._read()
        self._last, self._origin = None, None
        return spans

    def _record(self) -> Event:
        self._last = self._stream.record(self._pop_unused())
        self._steps[-1][1].append(self._last)
        return self._last

    def _pop_unused(self) -> Event | None:
        return self._unused.pop() if self._unused else None

    def _read(self) -> Iterator[Span]:
        """Return the phases of the first step, and keep its events for later ones."""
        step, events = self._steps.popleft()
        done = events if step.previous is None else [step.previous, *events]
        at = {id(event): self._to_ns(event) for event in done}
        times = Step(
            step.data_wait,
            None if step.previous is None else at[id(step.previous)],
            [(phase, at[id(start)], at[id(end)]) for phase, start, end in step.phases],
            [(at[id(start)], at[id(end)], waited) for start, end, waited in step.communications],
        )
        following = self._steps[0][0].previous if self._steps else self._last
        self._unused += [event for event in done if event is not following]
        return measure_step(times)

    def _to_ns(self, event: Event) -> int:
        assert self._origin
        origin, wall = self._origin
        return wall + round(origin.elapsed_time(event) * 1e6)


def _list_last(step: Step[Event]) -> list[Event]:
    """Return the events that the GPU passes last: the end of the last phase, and those of communications."""
    return [end for *_, end in step.phases[-1:]] + [end for _, end, _ in step.communications]
