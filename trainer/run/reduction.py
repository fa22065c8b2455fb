"""Average the gradients of a loop over the workers, after the backward pass of the last part of a batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainyard.trainer.model.sparse import refuse_sparse_gradients
from trainyard.trainer.strategies.base import OnCommunication, ring_allreduce
from trainyard.trainer.world import World

BUCKET_BYTES = 25 << 20
"""The size of what is reduced at a time, as DDP's."""


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

    def reduce(self, loss: Tensor) -> Tensor:
        """Average the gradients, and return the sum of `loss` over all workers. All workers must call this."""
        if self._world.size == 1:
            return loss
        wall, start = time.time_ns(), time.perf_counter_ns()
        parameters = list(self._parameters.values())
        own = [parameter.grad is not None for parameter in parameters]
        head = torch.cat([loss.double().reshape(1), torch.tensor(own, dtype=torch.float64, device=loss.device)])
        counts = self._world.sum(head).tolist()
        gradients = []
        for parameter, count in zip(parameters, counts[1:], strict=True):
            if count:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                gradients.append(parameter.grad)
        for bucket in _fill_buckets(gradients):
            self._average(bucket)
        self._on_communication(wall, time.perf_counter_ns() - start, True)
        return torch.tensor(counts[0], dtype=loss.dtype, device=loss.device)

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

    def _average(self, gradients: Sequence[Tensor]) -> None:
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients]).div_(self._world.size)
        dist.all_reduce(flat)
        self.bytes_sent += ring_allreduce(flat.nbytes, self._world.size)
        for gradient, values in zip(gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True):
            gradient.copy_(values.view_as(gradient))


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
