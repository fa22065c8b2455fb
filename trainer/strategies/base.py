"""What a strategy is to the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager

from torch import nn

from trainer.world import World

Communicated = Callable[[int, int], None]
"""Told of each exchange: wall clock of its start and its length, both in nanoseconds."""


class Strategy(ABC):
    """Keeps the ranks' models one. The gradient of a global batch is the mean over ranks."""

    def __init__(self, world: World) -> None:
        self.world = world

    @abstractmethod
    def attach(self, network: nn.Module, communicated: Communicated) -> nn.Module:
        """The module to call in place of `network`; afterwards all ranks hold the same weights."""

    @abstractmethod
    def communicating(self, network: nn.Module, last: bool) -> AbstractContextManager[None]:
        """The context of one forward and backward pass; `last` before the optimizer's step."""
