"""Average the gradients of a loop over the workers, after the backward pass of the last part of a batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainyard.errors import TrainyardError
from trainyard.trainer.model.sparse import refuse_sparse_gradients
from trainyard.trainer.strategies.base import OnCommunication, ring_allreduce
from trainyard.trainer.world import World

BUCKET_BYTES = 25 << 20
"""The size of what is reduced at a time, as DDP's."""
ENDED, LEFT = -1, -2
"""What a worker compares that has ended an epoch, or has left the loop, in place of the number of a backward pass."""


class GradientReducer:
    """Average gradients over the workers: those of all networks, whichever of them a backward pass has reached.

    A gradient that only some workers have counts as zero on the others; one that none has stays away. Gradients that
    all workers have in common already stay what they are, so that several backward passes may add up.

    Args:
        world: The workers.
        on_communication: Called after each reduction.

    Attributes:
        bytes_sent: Bytes that this worker has sent.
    """

    def __init__(self, world: World, on_communication: OnCommunication) -> None:
        self._world, self._on_communication = world, on_communication
        self._parameters: dict[int, nn.Parameter] = {}
        self.bytes_sent = 0

    def add(self, network: nn.Module) -> None:
        """Reduce the gradients of a network too. Raises TrainyardError if they are sparse."""
        if self._world.size > 1:
            refuse_sparse_gradients(network, "a loop on several workers")
        self._parameters |= {id(parameter): parameter for parameter in network.parameters()}

    def reduces(self, tensor: Tensor) -> bool:
        """Return whether a tensor is a parameter of a network whose gradients are averaged."""
        return id(tensor) in self._parameters

    def reduce(self, loss: Tensor, step: int, call: int) -> Tensor:
        """Average the gradients, and return the sum of `loss` over all workers. All workers must call this.

        Args:
            loss: The share of this worker in a loss.
            step: The number of the step in the training.
            call: The number of the call in this step, from 1.

        Raises:
            TrainyardError: Another worker is at another step or call.
        """
        if self._world.size == 1:
            return loss
        wall, start = time.time_ns(), time.perf_counter_ns()
        parameters = list(self._parameters.values())
        own = [parameter.grad is not None for parameter in parameters]
        total, *counts = self._exchange(loss, own, step, call)
        gradients = []
        for parameter, count in zip(parameters, counts, strict=True):
            if count:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        for bucket in _fill_buckets(gradients):
            self._average(bucket)
        self._on_communication(wall, time.perf_counter_ns() - start, True)
        return torch.tensor(total, dtype=loss.dtype, device=loss.device)

    def compare(self, step: int, call: int) -> None:
        """Check that no worker averages gradients now. All workers must call this. Raises TrainyardError if one does.

        Args:
            step: The number of the step.
            call: 0 after a step without a backward pass, `ENDED` or `LEFT`.
        """
        self._exchange(torch.zeros((), device=self._world.device), [False] * len(self._parameters), step, call)

    @contextmanager
    def without_trace(self) -> Iterator[None]:
        """Make the gradients of the backward pass in the body zero: that of a worker without rows.

        A loss times 0 is not enough: 0 times NaN or infinity is NaN.
        """
        before = {number: parameter.grad for number, parameter in self._parameters.items()}
        for parameter in self._parameters.values():
            parameter.grad = None
        yield
        for number, parameter in self._parameters.items():
            if parameter.grad is not None or before[number] is not None:
                earlier = before[number]
                parameter.grad = torch.zeros_like(parameter) if earlier is None else earlier

    def _exchange(self, loss: Tensor, has_gradient: Sequence[bool], step: int, call: int) -> list[float]:
        """Return the sum of the losses, and for each parameter how many workers have a gradient of it."""
        places = torch.zeros(self._world.size, 2, dtype=torch.float64)
        places[self._world.rank] = torch.tensor([step, call])
        numbers = torch.cat([torch.tensor(has_gradient, dtype=torch.float64), places.reshape(-1)]).to(loss.device)
        sums = self._world.sum(torch.cat([loss.double().reshape(1), numbers])).tolist()
        by_rank = list(zip(sums[-2 * self._world.size :: 2], sums[1 - 2 * self._world.size :: 2], strict=True))
        if other := next((rank for rank, place in enumerate(by_rank) if place != by_rank[0]), None):
            raise TrainyardError(
                f"the workers do not take the same steps: rank 0 {_describe(*by_rank[0])}, and rank {other} "
                f"{_describe(*by_rank[other])}. Call batch.backward as often on each worker, also where batch.rows is "
                "0, and leave the loop at the same step; batch.backward returns the loss of all workers."
            )
        return sums[: -2 * self._world.size]

    def _average(self, gradients: Sequence[Tensor]) -> None:
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients]).div_(self._world.size)
        dist.all_reduce(flat)
        self.bytes_sent += ring_allreduce(flat.nbytes, self._world.size)
        for gradient, values in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(values.view_as(gradient))


def _describe(step: float, call: float) -> str:
    """Return where in a training a worker is."""
    if call < 0:
        return f"has {'left the loop' if call == LEFT else 'ended the epoch'} after step {step + 1:.0f}"
    return f"is at backward pass {call:.0f} of step {step + 1:.0f}" if call else f"has none in step {step + 1:.0f}"


def _fill_buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield the gradients in groups of one type and a limited size."""
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for gradient in gradients:
        by_type.setdefault(gradient.dtype, []).append(gradient)
    for values in by_type.values():
        bucket: list[Tensor] = []
        for gradient in values:
            if bucket and sum(part.nbytes for part in bucket) + gradient.nbytes > BUCKET_BYTES:
                yield bucket
                bucket = []
            bucket.append(gradient)
        yield bucket
