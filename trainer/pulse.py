"""The pulse: what one rank has noticed becomes known to all of them, at the same step."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

import torch

from trainer.world import World

SECONDS = 0.5
MOST_STEPS = 1000


class Pulse:
    """An exchange every half second or so, at a step that all ranks know beforehand."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next = 1
        self._last: tuple[int, float] | None = None

    def due(self, updates: int) -> bool:
        """Whether the ranks exchange after this step. They all ask at the same steps."""
        return updates >= self._next

    def exchange(self, updates: int, *notices: bool) -> list[bool]:
        """For each notice whether any rank has it; the next exchange is set by the slowest rank's steps."""
        now = time.monotonic()
        steps, since = self._last or (updates - 1, now)
        self._last = (updates, now)
        pace = (now - since) / max(updates - steps, 1)
        told = torch.tensor([*map(float, notices), pace], dtype=torch.float64)
        *found, slowest = self._world.largest(told).tolist()
        self._next = updates + min(max(int(SECONDS / max(slowest, 1e-9)), 1), MOST_STEPS if slowest else 1)
        return [value > 0 for value in found]


class Termination:
    """Whether this process was asked to end (SIGTERM: preemption, or a node that is drained).

    A context; in a thread other than the main one, where signals cannot be caught, it is never asked.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Termination:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
