"""Clocks of hosts differ: by how much is measured, as NTP does, by asking and timing the answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

QUESTIONS = 8


@dataclass(frozen=True)
class Offset:
    """How far this host's clock is behind another's, in nanoseconds; at most `error_ns` off."""

    behind_ns: int = 0
    error_ns: int = 0


def offset(ask: Callable[[], int], here: Callable[[], int] = time.time_ns) -> Offset:
    """`ask` returns the other clock's time in nanoseconds.

    The answer that came quickest says it best: it was given somewhere between question and answer (Cristian,
    Distributed Computing 1989).
    """
    best: Offset | None = None
    for _ in range(QUESTIONS):
        asked, there, answered = here(), ask(), here()
        found = Offset(there - (asked + answered) // 2, (answered - asked) // 2)
        if best is None or found.error_ns < best.error_ns:
            best = found
    assert best
    return best
