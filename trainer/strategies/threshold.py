"""Share gradients by sign and threshold, with a threshold that adapts itself as DL4J's does.

Strom, "Scalable distributed DNN training using commodity GPU cloud computing", Interspeech 2015. Where Strom sends the
threshold, signs here stand for the mean magnitude of the sent elements, as in 1-bit SGD (Seide et al., Interspeech
2014): it costs one number a message, and leaves less for later steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from trainyard.schemas.specs.strategies import Threshold as Options
from trainyard.trainer.strategies import ddp
from trainyard.trainer.strategies.base import OnCommunication, Strategy, ring_allgather, ring_allreduce

MIN_ELEMENTS = 16
GAIN = 0.1
"""The part of the logarithmic error that one step corrects. Far fewer than half of the elements exceed twice the
threshold: with a gain of 0.5 there are too many and too few elements by turns, up to five times as many as intended."""


@dataclass
class Encoding:
    """This worker's threshold for one bucket of `size` elements, and how many steps have used it."""

    size: int
    threshold: float
    steps: int = 0

    def adapt(self, count: int, target: int) -> None:
        """Move the threshold, which `count` elements exceeded, towards the one that `target` elements exceed."""
        self.threshold *= min(max((count / target) ** GAIN, 0.5), 2.0)


class Threshold(Strategy[Options]):
    """DDP with sparse messages. What is not sent of a gradient stays in the worker's residual for the next step."""

    _ddp: DistributedDataParallel | None = None
    _has_restored_residuals = False

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        """Return the network in DDP."""
        self._network = network
        self._residuals = {name: torch.zeros(p.numel(), device=p.device) for name, p in network.named_parameters()}
        self._names = {id(p): name for name, p in network.named_parameters()}
        self._buckets: dict[tuple[str, ...], Tensor] = {}
        self._encodings: dict[int, Encoding] = {}
        if self.world.size == 1:
            return network
        self._ddp = ddp.wrap(network, self.world, self._reduce, on_communication, None)
        return self._ddp

    def micro_batch(self, last: bool) -> AbstractContextManager[None]:
        """Communicate gradients in the last micro-batch only."""
        return ddp.sync_if_last(self._ddp, last)

    def optimizer_step(self) -> AbstractContextManager[None]:
        """Without other workers, add what a former group has left to send to the gradient."""
        if self.world.size == 1 and self._has_restored_residuals:
            for name, parameter in self._network.named_parameters():
                if parameter.grad is not None:
                    parameter.grad += self._residuals[name].view_as(parameter.grad)
                    self._residuals[name].zero_()
            self._has_restored_residuals = False
        return nullcontext()

    def rank_state(self) -> dict[str, Tensor]:
        """Return the residuals and thresholds."""
        encodings = [astuple(self._encodings[number]) for number in sorted(self._encodings)]
        residuals = {f"residual.{name}": residual for name, residual in self._residuals.items()}
        return residuals | {"encodings": torch.tensor(encodings, dtype=torch.float64)}

    def restore_rank(self, state: Mapping[str, Tensor]) -> None:
        """Restore the residuals and thresholds."""
        for name, residual in self._residuals.items():
            residual.copy_(state[f"residual.{name}"])
        self._has_restored_residuals = True
        for number, (size, threshold, steps) in enumerate(state["encodings"].tolist()):
            self._encodings[number] = Encoding(round(size), threshold, round(steps))

    def _reduce(self, bucket: GradBucket) -> Future[Tensor]:
        gradient, residual = bucket.buffer(), self._get_residual(bucket)
        encoding = self._get_encoding(bucket.index(), gradient.numel())
        residual.add_(gradient)
        capacity = compute_capacity(gradient.numel(), self.options.density, self.world.size)
        if capacity == 0:
            gradient.copy_(residual)
            residual.zero_()
            self.bytes_sent += ring_allreduce(gradient.nbytes, self.world.size)
            return allreduce_hook(dist.group.WORLD, bucket)  # type: ignore[arg-type]
        if encoding.steps % self.options.clip_every == 0:
            bound = self.options.clip * encoding.threshold
            residual.clamp_(-bound, bound)
        encoding.steps += 1
        indices = (residual.abs() > encoding.threshold).nonzero().squeeze(1)
        encoding.adapt(len(indices), capacity)
        message = encode(residual, indices, capacity)
        self.bytes_sent += ring_allgather(message.nbytes, self.world.size)
        messages = message.new_empty(self.world.size * len(message))
        work = dist.all_gather_into_tensor(messages, message, async_op=True)

        def decode_messages(gathered: Future[Any]) -> Tensor:
            gathered.value()
            return decode(messages.view(self.world.size, -1), gradient)

        return work.get_future().then(decode_messages)  # type: ignore[union-attr]

    def _get_encoding(self, number: int, size: int) -> Encoding:
        encoding = self._encodings.get(number)
        if encoding is None or encoding.size != size:
            self._encodings[number] = Encoding(size, encoding.threshold if encoding else self.options.initial)
        return self._encodings[number]

    def _get_residual(self, bucket: GradBucket) -> Tensor:
        """Return the residuals of a bucket's parameters, end to end. DDP rebuilds its buckets once."""
        names = tuple(self._names[id(p)] for p in bucket.parameters())
        if names not in self._buckets:
            self._buckets = {key: residual for key, residual in self._buckets.items() if not set(key) & set(names)}
            residual = torch.cat([self._residuals[name] for name in names])
            parts = torch.split(residual, [self._residuals[name].numel() for name in names])
            self._residuals.update(zip(names, parts, strict=True))
            self._buckets[names] = residual
        return self._buckets[names]


def compute_capacity(size: int, density: float, workers: int) -> int:
    """Return how many of `size` elements a message has room for; 0 where reducing all of them takes fewer bytes."""
    capacity = min(size, max(math.ceil(density * size), MIN_ELEMENTS))
    return 0 if ring_allgather(capacity + 2, workers) >= ring_allreduce(size, workers) else capacity


def encode(residual: Tensor, indices: Tensor, capacity: int) -> Tensor:
    """Encode some elements as a message, and subtract what is sent from `residual`.

    Args:
        residual: The elements.
        indices: The indices of the elements to send; if they exceed `capacity`, the largest elements are sent.
        capacity: How many elements the message has room for.

    Returns:
        int32 (capacity + 2): a count, the bits of the mean magnitude, and for each element twice the index plus the
        sign.
    """
    if len(indices) > capacity:
        indices = indices[residual[indices].abs().topk(capacity).indices]
    values = residual[indices]
    negative = values < 0
    magnitude = values.abs().sum() / max(len(indices), 1)
    message = torch.zeros(capacity + 2, dtype=torch.int32, device=residual.device)
    message[0] = len(indices)
    message[1] = magnitude.view(torch.int32)
    message[2 : len(indices) + 2] = (indices << 1 | negative).to(torch.int32)
    residual[indices] = values + torch.where(negative, magnitude, -magnitude)
    return message


def decode(messages: Tensor, out: Tensor) -> Tensor:
    """Write the mean of `messages` (workers, capacity + 2) to `out`, and return it."""
    workers, width = messages.shape
    magnitudes = messages[:, 1].contiguous().view(torch.float32)
    entries = messages[:, 2:]
    valid = torch.arange(width - 2, device=out.device) < messages[:, :1]
    values = magnitudes[:, None] * (1 - 2 * (entries & 1)) * valid / workers
    return out.zero_().index_add_(0, (entries >> 1).reshape(-1).long(), values.reshape(-1).to(out.dtype))
