"""Functions for strategies whose workers take steps on their own between communications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.optim import Optimizer

from trainyard.trainer.strategies.base import broadcast, ring_allreduce
from trainyard.trainer.world import World


def broadcast_weights(network: nn.Module, world: World) -> None:
    """Copy the weights and buffers of rank 0 to all workers."""
    if world.size > 1:
        for tensor in chain(network.parameters(), network.buffers()):
            broadcast(tensor.detach())


def average(tensors: Iterable[Tensor], world: World) -> int:
    """Replace each tensor of floats by its mean over the workers, and return the bytes that this worker sent.

    Types are averaged one by one: torch would convert all to one of them.
    """
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors if world.size > 1 else ():
        if tensor.is_floating_point() or tensor.is_complex():
            by_type.setdefault(tensor.dtype, []).append(tensor)
    for values in by_type.values():
        average_parameters(iter(values), dist.group.WORLD)  # type: ignore[arg-type]
    return sum(ring_allreduce(sum(tensor.nbytes for tensor in values), world.size) for values in by_type.values())


def get_floating_buffers(network: nn.Module) -> Iterator[Tensor]:
    """Return buffers such as the running statistics of batch normalization, but no counters and no constants."""
    state = network.state_dict(keep_vars=True).values()
    return (tensor for tensor in state if not isinstance(tensor, nn.Parameter) and tensor.is_floating_point())


def get_optimizer_tensors(optimizer: Optimizer) -> Iterator[Tensor]:
    """Yield an optimizer's state for the elements of each parameter, such as momenta, but no counters."""
    return (value for value in _get_floating_state(optimizer) if value.dim() > 0)


def share_optimizer_state(optimizer: Optimizer, world: World) -> bool:
    """Give all workers a state for the parameters that any worker has one for: zeros, and the counters of that worker.

    Returns:
        Whether all parameters have a state now, or none has: the optimizer, which has taken a step, keeps none.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    own = [bool(optimizer.state.get(parameter)) for parameter in parameters]
    counts = world.sum(torch.tensor(own, dtype=torch.int32, device=world.device)).tolist()
    if partly := [number for number, count in enumerate(counts) if 0 < count < world.size]:
        described = {number: _describe(optimizer.state[parameters[number]]) for number in partly if own[number]}
        states = {number: state for each in world.gather(described) for number, state in each.items()}
        for number in partly:
            if not own[number]:
                optimizer.state[parameters[number]] = _build_state(states[number], world.device)
    return all(counts) or not any(counts)


def share_counters(optimizer: Optimizer, world: World) -> None:
    """Set the counters of an optimizer, such as the steps of each parameter, to the largest of any worker."""
    counters = [value for value in _get_floating_state(optimizer) if value.dim() == 0]
    if world.size > 1 and counters:
        largest = world.max(torch.stack([counter.cpu() for counter in counters]))
        for counter, value in zip(counters, largest.unbind(), strict=True):
            counter.copy_(value)


def _get_floating_state(optimizer: Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for value in optimizer.state.get(parameter, {}).values():
                if isinstance(value, Tensor) and value.is_floating_point():
                    yield value


def _describe(state: Mapping[str, Any]) -> dict[str, tuple[bool, Any]]:
    """Return for each value of the state of a parameter whether it is on the device, and the value without elements."""
    return {
        name: (value.is_cuda, value.to("meta" if value.dim() else "cpu"))
        if isinstance(value, Tensor)
        else (False, value)
        for name, value in state.items()
    }


def _build_state(described: Mapping[str, tuple[bool, Any]], device: torch.device) -> dict[str, Any]:
    """Return the state that `_describe` described, with zeros as elements."""
    state = {}
    for name, (on_device, value) in described.items():
        if isinstance(value, Tensor):
            target = device if on_device else torch.device("cpu")
            state[name] = torch.zeros_like(value, device=target) if value.is_meta else value.to(target)
        else:
            state[name] = value
    return state
