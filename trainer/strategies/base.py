"""What a strategy is to the loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from trainyard.schemas.specs.strategies import StrategyOptions
from trainyard.trainer.world import World

Options = TypeVar("Options", bound=StrategyOptions)
OnCommunication = Callable[[int, int, bool], None]
"""Told of each exchange: wall clock of its start and its length in nanoseconds, and whether the rank waited for it."""


class Strategy(ABC, Generic[Options]):
    """Keeps the ranks' models one. The gradient of a global batch is the mean over ranks.

    The loop calls, in this order: `wrap_model`, `wrap_optimizer`; for each global batch `micro_batch` around each of its
    parts, `optimizer_step` before the optimizer's step, and `after_step` after it; `synchronize` at the end of an epoch.
    `bytes_sent` counts what this rank has sent, `own_optimizer` says whether each rank's optimizer has a
    state of its own, `sharded` whether every forward pass is an exchange that all ranks must take part in.
    """

    own_optimizer = False
    sharded = False

    def __init__(self, options: Options, world: World) -> None:
        self.options = options
        self.world = world
        self.bytes_sent = 0

    @abstractmethod
    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        """The module to call in place of `network`; afterwards all ranks hold the same weights."""

    def wrap_optimizer(self, optimizer: Optimizer, parts: int) -> Optimizer:
        """The optimizer to use in place of `optimizer`, which was made of the attached network's parameters.

        Before each of its steps there are `parts` backward passes.
        """
        return optimizer

    def micro_batch(self, network: nn.Module, last: bool) -> AbstractContextManager[None]:
        """The context of one forward and backward pass; `last` before the optimizer's step."""
        return nullcontext()

    def optimizer_step(self) -> AbstractContextManager[None]:
        """Waits until the gradients are those of the global batch; the context of what the optimizer does with them."""
        return nullcontext()

    def after_step(self) -> None:
        """The optimizer has taken a step."""

    def close(self) -> None:
        """End what the strategy has started beside the process group."""

    def synchronize(self) -> None:
        """Bring all ranks to the same weights, if they are apart."""

    @property
    def in_sync(self) -> bool:
        """Whether all ranks hold the same weights now."""
        return True

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold of this strategy that is the same on all ranks."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` returned."""

    def rank_state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold of this rank."""
        return {}

    def restore_ranks(self, states: list[dict[str, Tensor]]) -> None:
        """Go on from what `rank_state` returned on each rank of a gang, which may have been of another size."""


def ring_allreduce(payload: int, ranks: int) -> int:
    """Bytes that each rank sends to reduce `payload` bytes over a ring (Patarasuk and Yuan, JPDC 2009)."""
    return 2 * payload * (ranks - 1) // ranks


def ring_allgather(payload: int, ranks: int) -> int:
    """Bytes that each rank sends until all have the `payload` bytes of each."""
    return payload * (ranks - 1)
