"""Share the largest changes of the weights, as DL4J's gradient sharing does.

Each worker takes its optimizer's step on its own gradient, and sends of the change what exceeds a threshold; the rest
stays in its residual for later steps (Strom, "Scalable distributed DNN training using commodity GPU cloud computing",
Interspeech 2015). So momentum and adaptive step sizes see the whole gradient of each step, and not the few elements
that arrive: the momentum correction of Lin et al., "Deep Gradient Compression", ICLR 2018. Where Strom sends signs,
elements are sent in bfloat16, and the rounding error stays in the residual.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from functools import reduce

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.strategies import Threshold as Options
from trainyard.trainer.strategies import local
from trainyard.trainer.strategies.base import (
    OnCommunication,
    Strategy,
    broadcast_buffers,
    ring_allgather,
    ring_allreduce,
)

MIN_ELEMENTS = 16
BLOCK = 1 << 16
"""The elements whose indices have 16 bits."""
MAX_ELEMENTS = 1 << 23
"""The elements of the model that one message is about, which bounds what the messages of all workers take in memory."""
GAIN = 0.1
"""The part of the logarithmic error that one step corrects. Far fewer than half of the elements exceed twice the
threshold: with a gain of 0.5 there are too many and too few elements by turns, up to five times as many as intended."""


class Threshold(Strategy[Options]):
    """Steps of each worker's own optimizer, of which sparse messages are shared after each step."""

    own_optimizer = True
    _has_restored_residual = False

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        """Copy the weights of rank 0 to all workers."""
        local.broadcast_weights(network, self.world)
        self._network, self._on_communication = network, on_communication
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        self._shared, self._shared_parts = self._build_flat()
        self._residual, self._residual_parts = self._build_flat()
        _copy(self._parameters, self._shared_parts)
        self._thresholds = [0.0] * len(_split(self._shared))
        return network

    @torch.no_grad()
    def after_step(self) -> None:
        """Add the change of the step to the residual, share the largest elements, and apply what all have shared."""
        if self.world.size == 1 and not self._has_restored_residual:
            return
        wall, start = time.time_ns(), time.perf_counter_ns()
        if self.world.size > 1:
            for rest, after, before in zip(self._residual_parts, self._parameters, self._shared_parts, strict=True):
                rest.add_(after).sub_(before)
            chunks = zip(_split(self._residual), _split(self._shared), strict=True)
            for number, (residual, shared) in enumerate(chunks):
                shared.add_(self._exchange(number, residual))
        else:  # what a former group has left to send
            _copy(self._parameters, self._shared_parts)
            self._shared.add_(self._residual)
            self._residual.zero_()
            self._has_restored_residual = False
        _copy(self._shared_parts, self._parameters)
        self._on_communication(wall, time.perf_counter_ns() - start, True)

    def synchronize(self) -> None:
        """Copy buffers from rank 0 to all workers.

        Raises:
            TrainyardError: A gradient was not finite: what it has changed stays in the residual, and is never sent.
        """
        are_finite = self.world.gather(bool(self._residual.isfinite().all()))
        if not all(are_finite):
            raise TrainyardError(
                f"the training diverged: a gradient of worker {are_finite.index(False)} was not finite, and its "
                "changes are no longer sent. Lower the learning rate in the recipe, set clip_norm=, or normalize the "
                "features."
            )
        broadcast_buffers(self._network, self.world)

    def rank_state(self) -> dict[str, Tensor]:
        """Return the residual and the thresholds."""
        return {"residual": self._residual, "thresholds": torch.tensor(self._thresholds, dtype=torch.float64)}

    def restore_rank(self, state: Mapping[str, Tensor]) -> None:
        """Restore the residual and the thresholds."""
        _copy(self._parameters, self._shared_parts)
        self._residual.copy_(state["residual"])
        self._thresholds = state["thresholds"].tolist()
        self._has_restored_residual = True

    def _exchange(self, number: int, residual: Tensor) -> Tensor:
        """Return the mean of what all workers send of their residuals, and subtract what this one sends."""
        size, workers = residual.numel(), self.world.size
        capacity = compute_capacity(size, self.options.density, workers)
        if capacity == 0:
            update = residual / workers
            residual.zero_()
            self.bytes_sent += ring_allreduce(update.nbytes, workers)
            dist.all_reduce(update)
            return update
        threshold = self._thresholds[number] or find_threshold(residual, capacity)
        indices = (residual.abs() > threshold).nonzero().squeeze(1)
        self._thresholds[number] = adapt(threshold, len(indices), capacity)
        message = encode(residual, indices, capacity)
        self.bytes_sent += ring_allgather(message.nbytes, workers)
        messages = message.new_empty(workers * len(message))
        dist.all_gather_into_tensor(messages, message)
        return decode(messages.view(workers, -1), torch.empty_like(residual))

    def _build_flat(self) -> tuple[Tensor, list[Tensor]]:
        """Return zeros for all parameters end to end, and views of the size of each parameter."""
        sizes = [p.numel() for p in self._parameters]
        dtype = reduce(torch.promote_types, (p.dtype for p in self._parameters), torch.float32)
        flat = torch.zeros(sum(sizes), dtype=dtype, device=self.world.device)
        parts = zip(torch.split(flat, sizes), self._parameters, strict=True)
        return flat, [part.view_as(parameter) for part, parameter in parts]


@torch.no_grad()
def _copy(sources: Iterable[Tensor], targets: Iterable[Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)


def _split(flat: Tensor) -> tuple[Tensor, ...]:
    return torch.split(flat, MAX_ELEMENTS)


def compute_capacity(size: int, density: float, workers: int) -> int:
    """Return how many of `size` elements a message has room for; 0 where reducing all of them takes fewer bytes."""
    capacity = min(size, max(math.ceil(density * size), MIN_ELEMENTS))
    return 0 if ring_allgather(count_blocks(size) + capacity, workers) >= ring_allreduce(size, workers) else capacity


def find_threshold(residual: Tensor, target: int) -> float:
    """Return the threshold that the largest `target` elements reach."""
    return float(residual.abs().topk(target).values[-1].item())


def adapt(threshold: float, count: int, target: int) -> float:
    """Move a threshold, which `count` elements exceeded, towards the one that `target` elements exceed."""
    return threshold * min(max(math.pow(count / target, GAIN), 0.5), 2.0)


def encode(residual: Tensor, indices: Tensor, capacity: int) -> Tensor:
    """Encode some elements as a message, and subtract what is sent from `residual`.

    Args:
        residual: The elements.
        indices: The ascending indices of the elements to send; if they exceed `capacity`, the largest elements are
            sent.
        capacity: How many elements the message has room for.

    Returns:
        int32 (blocks + capacity): for each block of 65,536 elements how many of them follow, and for each element its
        value in bfloat16 and the 16 bits of its index in the block.
    """
    if len(indices) > capacity:
        indices = indices[residual[indices].abs().topk(capacity).indices].sort().values
    values = residual[indices].bfloat16()
    residual[indices] -= values.float()
    blocks = count_blocks(len(residual))
    message = torch.zeros(blocks + capacity, dtype=torch.int32, device=residual.device)
    message[:blocks] = torch.bincount(indices // BLOCK, minlength=blocks)
    message[blocks : blocks + len(indices)] = values.view(torch.int16).int() << 16 | (indices % BLOCK).int()
    return message


def decode(messages: Tensor, out: Tensor) -> Tensor:
    """Write the mean of `messages` (workers, blocks + capacity) to `out`, and return it."""
    blocks = count_blocks(len(out))
    ends, entries = messages[:, :blocks].cumsum(1), messages[:, blocks:]
    numbers = torch.arange(entries.shape[1], device=out.device).expand_as(entries).contiguous()
    block = torch.searchsorted(ends, numbers, right=True).clamp_(max=blocks - 1)
    values = (entries >> 16).to(torch.int16).view(torch.bfloat16).to(out.dtype)
    values = values * (numbers < ends[:, -1:]) / len(messages)
    return out.zero_().index_add_(0, (block * BLOCK + (entries & BLOCK - 1)).reshape(-1), values.reshape(-1))


def count_blocks(size: int) -> int:
    """Return how many blocks `size` elements are in."""
    return -(-size // BLOCK)
