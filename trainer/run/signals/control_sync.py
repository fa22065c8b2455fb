"""Detect SIGTERM, and synchronize such control flags: what one worker has noticed is known to all at the same step."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import ExitStack
from types import FrameType

import torch

from trainyard.trainer.run.signals.container_signals import forward_sigterm
from trainyard.trainer.world import World

INTERVAL_SECONDS = 0.5
MAX_STEPS = 1000


class Termination:
    """Record SIGTERM (preemption, or a node that is drained) in the body of a `with`, without interrupting a step.

    Signals can be handled in the main thread only; in another thread `requested` stays False.

    Attributes:
        requested: Whether this process has received SIGTERM.
    """

    def __init__(self) -> None:
        self.requested = False
        self._stack = ExitStack()

    def __enter__(self) -> Termination:
        if threading.current_thread() is threading.main_thread():
            self._stack.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, self._handle))
            self._stack.enter_context(forward_sigterm())
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True


class ControlSync:
    """A small collective every half second or so, at steps that all workers compute alike."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next = 1
        self._last: tuple[int, float] | None = None

    def is_due(self, updates: int) -> bool:
        """Return whether the workers synchronize after this step. All of them must call this after the same steps."""
        return updates >= self._next

    def sync(self, updates: int, *flags: bool) -> list[bool]:
        """Return for each flag whether any worker has set it; the slowest worker determines the next step."""
        now = time.monotonic()
        last_updates, since = self._last or (updates - 1, now)
        self._last = (updates, now)
        step_seconds = (now - since) / max(updates - last_updates, 1)
        values = torch.tensor([*map(float, flags), step_seconds], dtype=torch.float64)
        *maxima, slowest = self._world.max(values).tolist()
        steps = min(max(int(INTERVAL_SECONDS / max(slowest, 1e-9)), 1), MAX_STEPS if slowest else 1)
        self._next = updates + steps
        return [value > 0 for value in maxima]
