"""The pulse: what one rank has noticed becomes known to all of them, at the same step."""

from __future__ import annotations

import time

import torch

from trainyard.trainer.world import World

SECONDS = 0.5
MOST_STEPS = 1000


class ControlSync:
    """An exchange every half second or so, at a step that all ranks know beforehand."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next = 1
        self._last: tuple[int, float] | None = None

    def due(self, updates: int) -> bool:
        """Whether the ranks exchange after this step. They all ask at the same steps."""
        return updates >= self._next

    def sync(self, updates: int, *notices: bool) -> list[bool]:
        """For each notice whether any rank has it; the next exchange is set by the slowest rank's steps."""
        now = time.monotonic()
        steps, since = self._last or (updates - 1, now)
        self._last = (updates, now)
        pace = (now - since) / max(updates - steps, 1)
        told = torch.tensor([*map(float, notices), pace], dtype=torch.float64)
        *found, slowest = self._world.max(told).tolist()
        self._next = updates + min(max(int(SECONDS / max(slowest, 1e-9)), 1), MOST_STEPS if slowest else 1)
        return [value > 0 for value in found]
