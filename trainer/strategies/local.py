"""Functions for strategies whose workers take steps on their own between communications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.optim import Optimizer

from trainyard.trainer.strategies.base import ring_allreduce
from trainyard.trainer.world import World


def broadcast_weights(network: nn.Module, world: World) -> None:
    """Copy the weights and buffers of rank 0 to all workers."""
    if world.size > 1:
        for tensor in chain(network.parameters(), network.buffers()):
            dist.broadcast(tensor.detach(), 0)


def average(tensors: Iterable[Tensor], world: World) -> int:
    """Replace each tensor by its mean over the workers, and return the bytes that this worker sent."""
    values = list(tensors)
    if world.size == 1 or not values:
        return 0
    average_parameters(iter(values), dist.group.WORLD)  # type: ignore[arg-type]
    return ring_allreduce(sum(tensor.nbytes for tensor in values), world.size)


def get_floating_buffers(network: nn.Module) -> Iterator[Tensor]:
    """Return buffers such as the running statistics of batch normalization, but no counters and no constants."""
    state = network.state_dict(keep_vars=True).values()
    return (tensor for tensor in state if not isinstance(tensor, nn.Parameter) and tensor.is_floating_point())


def get_optimizer_tensors(optimizer: Optimizer) -> Iterator[Tensor]:
    """Yield an optimizer's state for the elements of each parameter, such as momenta, but no counters."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for value in optimizer.state.get(parameter, {}).values():
                if isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 0:
                    yield value
