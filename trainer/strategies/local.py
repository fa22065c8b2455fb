"""What strategies share whose ranks take steps by themselves between exchanges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.optim import Optimizer

from trainyard.trainer.strategies.base import ring_allreduce
from trainyard.trainer.world import World


def begin_alike(network: nn.Module, world: World) -> None:
    """Give all ranks the weights and buffers of rank 0."""
    if world.size > 1:
        for tensor in chain(network.parameters(), network.buffers()):
            dist.broadcast(tensor.detach(), 0)


def average(tensors: Iterable[Tensor], world: World) -> int:
    """Replace each tensor by its mean over the ranks, in one exchange. Returns the bytes that this rank sent."""
    held = list(tensors)
    if world.size == 1 or not held:
        return 0
    average_parameters(iter(held), dist.group.WORLD)  # type: ignore[arg-type]
    return ring_allreduce(sum(tensor.nbytes for tensor in held), world.size)


def floating_buffers(network: nn.Module) -> Iterator[Tensor]:
    """Such as the running statistics of a batch normalization; not its count of batches, nor constants."""
    state = network.state_dict(keep_vars=True).values()
    return (held for held in state if not isinstance(held, nn.Parameter) and held.is_floating_point())


def optimizer_tensors(optimizer: Optimizer) -> Iterator[Tensor]:
    """What an optimizer remembers for each element of a parameter: momenta, not counts of steps."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for value in optimizer.state.get(parameter, {}).values():
                if isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 0:
                    yield value
