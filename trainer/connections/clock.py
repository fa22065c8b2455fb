"""Measure the offset between the clocks of two hosts, as NTP does: request the other time, and time the answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

REQUESTS = 8


@dataclass(frozen=True)
class Offset:
    """How far this host's clock is behind another's, in nanoseconds; the error is at most `error_ns`."""

    behind_ns: int = 0
    error_ns: int = 0


def measure_offset(request_time: Callable[[], int], local_time: Callable[[], int] = time.time_ns) -> Offset:
    """Return the offset of the local clock.

    The fastest of several answers is the most precise: the remote time was read between request and answer (Cristian,
    Distributed Computing 1989).

    Args:
        request_time: Returns the other clock's time in nanoseconds.
        local_time: Returns this clock's time in nanoseconds.
    """
    best: Offset | None = None
    for _ in range(REQUESTS):
        requested, remote, answered = local_time(), request_time(), local_time()
        offset = Offset(remote - (requested + answered) // 2, (answered - requested) // 2)
        if best is None or offset.error_ns < best.error_ns:
            best = offset
    assert best
    return best
