"""The interface of a distributed training strategy, as the training loop calls it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Generic, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.fields import Precision
from trainyard.schemas.specs.strategies import StrategyOptions
from trainyard.trainer.world import World

Options = TypeVar("Options", bound=StrategyOptions)
ADDED_ELEMENTS = 1 << 23
"""The elements of saved states that are added up at a time."""
OnCommunication = Callable[[int, int, bool], None]
"""Called after each communication with the wall-clock time of its start and its duration in nanoseconds, and whether
the worker did nothing else meanwhile."""


class Strategy(ABC, Generic[Options]):
    """Synchronizes the models of all workers. The gradient of a global batch is the mean over workers.

    The loop calls, in this order: `wrap_model` and `wrap_optimizer`; for each global batch `micro_batch` around each of
    its micro-batches, `optimizer_step` around the optimizer's step, and `after_step` after it; `synchronize` at the end
    of an epoch; `close` at the end.

    Attributes:
        options: The options of the strategy.
        world: The workers.
        bytes_sent: Bytes that this worker has sent.
        own_optimizer: Whether the optimizer of each worker has a state of its own.
        sharded: Whether the model is sharded: `wrap_model` gets it on the CPU and moves it to the device in parts, and
            every forward pass is a collective, in which all workers must take part.
        precisions: The values of `precision` with which a strategy of your own works. With "float16" gradients have a
            scale, and each worker skips a step in which one of its gradients is not finite: list it if all workers have
            the same gradients after `optimizer_step`, and those that are not finite stay so.
    """

    precisions: ClassVar[tuple[Precision, ...]] = ("float32", "bfloat16")
    bytes_sent: int
    own_optimizer: bool = False
    sharded: bool = False

    def __init__(self, options: Options, world: World) -> None:
        self.options = options
        self.world = world
        self.bytes_sent = 0

    @abstractmethod
    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        """Return the module to call instead of `network`; afterwards all workers have the same weights."""

    def wrap_optimizer(self, optimizer: Optimizer, micro_batches: int) -> Optimizer:
        """Return the optimizer to use instead of `optimizer`.

        Args:
            optimizer: An optimizer of the wrapped model's parameters.
            micro_batches: The number of backward passes before each of its steps.
        """
        return optimizer

    def micro_batch(self, last: bool) -> AbstractContextManager[None]:
        """Return the context of one forward and backward pass; `last` is whether the optimizer's step follows."""
        return nullcontext()

    def optimizer_step(self) -> AbstractContextManager[None]:
        """Wait until the gradients are those of the global batch, and return the context of the optimizer's step."""
        return nullcontext()

    def after_step(self) -> None:
        """Do what is due after a step of the optimizer."""

    def find_warnings(self, steps: int) -> list[str]:
        """Return what the options do not do in a training of so many steps, a sentence each."""
        return []

    def close(self) -> None:
        """Stop what the strategy has started beside the process group."""

    def synchronize(self) -> None:
        """Make the weights of all workers the same, if they are not."""

    @property
    def in_sync(self) -> bool:
        """Whether all workers have the same weights now."""
        return True

    def state(self) -> dict[str, Tensor]:
        """Return the part of the state that is the same on all workers, for a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""

    def rank_state(self) -> dict[str, Tensor]:
        """Return the part of the state that belongs to this worker, for a checkpoint."""
        return {}

    def restore_rank(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `rank_state` returned on this worker before.

        If the group has another size now, `state` is the mean over all workers of the former group. The gradient is a
        mean over workers too, so their sum of residuals, for example, has the same effect as before.
        """


def merge_rank_states(read: Callable[[int], Mapping[str, Tensor]], workers: int, world: World) -> Mapping[str, Tensor]:
    """Return the state for `restore_rank`: the worker's own, or the mean if the group had another size.

    For the mean, each worker reads its part of the states, and all workers add up what they have read.

    Args:
        read: Reads the state of a rank. One state at a time is in memory, beside the mean.
        workers: The number of workers of the group that has saved the states.
        world: The workers of the group that restores them.
    """
    if workers == world.size:
        return read(world.rank)
    part: dict[str, Tensor] = {}
    for rank in range(world.rank, workers, world.size):
        for name, tensor in read(rank).items():
            share = tensor / workers
            part[name] = part[name].add_(share) if name in part else share
    kinds = world.gather({name: (tensor.shape, tensor.dtype) for name, tensor in part.items()})
    for name, (shape, dtype) in kinds[0].items():  # a worker of a larger group may have read nothing
        _add_up(part.setdefault(name, torch.zeros(shape, dtype=dtype)), world)
    return part


def _add_up(tensor: Tensor, world: World) -> None:
    """Add up a contiguous tensor on the CPU over all workers, piece by piece so that a GPU needs little memory."""
    for piece in torch.split(tensor.view(-1), ADDED_ELEMENTS):
        piece.copy_(world.sum(piece.to(world.device)))


def refuse_several_types(parameters: Iterable[Tensor], what: str) -> None:
    """Check that the parameters that are trained have one type. Raises TrainyardError if they do not.

    Args:
        parameters: The parameters.
        what: What cannot process several types, as the subject of a sentence.
    """
    types = sorted({str(p.dtype).removeprefix("torch.") for p in parameters if p.requires_grad})
    if len(types) > 1:
        raise TrainyardError(
            f"{what} cannot process parameters of several types ({', '.join(types)}). Convert the model to one, for "
            "example with model.float(), or write strategy='allreduce' without compression."
        )


def broadcast_buffers(network: nn.Module, world: World) -> None:
    """Copy the buffers that are saved, such as the statistics of batch normalization, from rank 0 to all workers."""
    for tensor in network.state_dict(keep_vars=True).values() if world.size > 1 else ():
        if isinstance(tensor, Tensor) and not isinstance(tensor, nn.Parameter):
            broadcast(tensor)


def broadcast(tensor: Tensor) -> None:
    """Copy a tensor from rank 0 to all workers. torch writes to memory as if it were contiguous, so it has to be."""
    values = tensor.contiguous()
    dist.broadcast(values, 0)
    if not tensor.is_contiguous():
        tensor.copy_(values)


def count_bytes(gradient: Tensor) -> int:
    """Return the bytes of a gradient, which is sparse for a layer such as `nn.Embedding(sparse=True)`."""
    if gradient.is_sparse:
        return gradient._values().nbytes + gradient._indices().nbytes
    return gradient.nbytes


def ring_allreduce(payload: int, workers: int) -> int:
    """Return the bytes that each worker sends to reduce `payload` bytes over a ring.

    Patarasuk and Yuan, Journal of Parallel and Distributed Computing 2009.
    """
    return 2 * payload * (workers - 1) // workers


def ring_allgather(payload: int, workers: int) -> int:
    """Return the bytes that each worker sends until all have the `payload` bytes of each."""
    return payload * (workers - 1)
