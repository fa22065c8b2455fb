"""Gradient sharing by sign and threshold (Strom, "Scalable distributed DNN training using commodity GPU cloud
computing", Interspeech 2015), with a threshold that adapts itself, as DL4J's does."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future

from trainer.strategies import ddp
from trainer.strategies.base import Communicated, Strategy, ring_allgather, ring_allreduce
from trainyard.contract.strategies import Threshold as Options

DENSE_STEPS = 10
ROOM = 1.5
LEAST = 16


@dataclass
class Encoding:
    """How one bucket of `size` elements is sent: at most `capacity` of them, as multiples of `threshold`.

    The capacity is agreed: it follows from the counts of all ranks. The threshold is this rank's own.
    """

    size: int
    threshold: float
    capacity: int
    steps: int = 0
    dense: int = 0
    most: int = -1
    """Elements that the rank with most of them sent in the last step; -1 when there is none."""

    def adapt(self, found: int, density: float) -> None:
        """Move the threshold towards the one that `density` of the elements exceed; `found` of them did."""
        ratio = found / (density * self.size)
        self.threshold *= min(max(math.sqrt(ratio), 0.5), 2.0)

    def agree(self, ranks: int, density: float) -> None:
        """Follow what all ranks sent in the step before: room for more, or all elements if that takes less."""
        if self.dense:
            self.dense -= 1
            return
        if self.most < 0:
            return
        self.capacity = min(self.size, max(math.ceil(ROOM * self.most), math.ceil(density * self.size), LEAST))
        self.most = -1
        if ring_allgather(4 * (self.capacity + 2), ranks) >= ring_allreduce(4 * self.size, ranks):
            self.dense = DENSE_STEPS
            self.capacity = first_capacity(self.size, density)


class Threshold(Strategy[Options]):
    """What is not sent of a gradient stays in this rank's residual, and is added to the next one."""

    def attach(self, network: nn.Module, communicated: Communicated) -> nn.Module:
        self._residuals = {name: torch.zeros(p.numel(), device=p.device) for name, p in network.named_parameters()}
        self._names = {id(p): name for name, p in network.named_parameters()}
        self._buckets: dict[tuple[str, ...], Tensor] = {}
        self._encodings: dict[int, Encoding] = {}
        if self.world.size == 1:
            return network
        return ddp.parallel(network, self.world, self._exchange, communicated, None)

    def communicating(self, network: nn.Module, last: bool) -> AbstractContextManager[None]:
        return ddp.accumulating(network, last)

    def rank_state(self) -> dict[str, Tensor]:
        encodings = [astuple(self._encodings[number]) for number in sorted(self._encodings)]
        residuals = {f"residual.{name}": rest for name, rest in self._residuals.items()}
        return residuals | {"encodings": torch.tensor(encodings, dtype=torch.float64)}

    def restore_ranks(self, states: list[dict[str, Tensor]]) -> None:
        """In a gang of another size each rank owes the mean of what all owed before: as much is made good."""
        mine = states[self.world.rank % len(states)]
        for name, rest in self._residuals.items():
            owed = [state[f"residual.{name}"] for state in states]
            rest.copy_(owed[self.world.rank] if len(states) == self.world.size else torch.stack(owed).mean(0))
        for number, (size, threshold, *counts) in enumerate(mine["encodings"].tolist()):
            self._encodings[number] = Encoding(int(size), threshold, *map(int, counts))

    def _exchange(self, bucket: GradBucket) -> Future[Tensor]:
        gradient, residual = bucket.buffer(), self._residual(bucket)
        encoding = self._encoding(bucket.index(), gradient.numel())
        encoding.agree(self.world.size, self.options.density)
        residual.add_(gradient)
        if encoding.steps % self.options.clip_every == 0:
            bound = self.options.clip * encoding.threshold
            residual.clamp_(-bound, bound)
        encoding.steps += 1
        found = (residual.abs() > encoding.threshold).nonzero().squeeze(1)
        if encoding.dense:
            encoding.adapt(len(found), self.options.density)
            gradient.copy_(residual)
            residual.zero_()
            self.bytes_sent += ring_allreduce(gradient.nbytes, self.world.size)
            return allreduce_hook(dist.group.WORLD, bucket)  # type: ignore[arg-type]
        message = encode(residual, found, encoding.threshold, encoding.capacity)
        encoding.adapt(len(found), self.options.density)
        self.bytes_sent += ring_allgather(message.nbytes, self.world.size)
        received = message.new_empty(self.world.size * len(message))
        work = dist.all_gather_into_tensor(received, message, async_op=True)

        def decoded(gathered: Future[Any]) -> Tensor:
            gathered.value()
            messages = received.view(self.world.size, -1)
            encoding.most = int(messages[:, 0].max())
            return decode(messages, gradient)

        return work.get_future().then(decoded)  # type: ignore[union-attr]

    def _encoding(self, number: int, size: int) -> Encoding:
        known = self._encodings.get(number)
        if known is None or known.size != size:
            threshold = known.threshold if known else self.options.initial
            self._encodings[number] = Encoding(size, threshold, first_capacity(size, self.options.density))
        return self._encodings[number]

    def _residual(self, bucket: GradBucket) -> Tensor:
        """The residuals of a bucket's parameters, end to end. DDP deals parameters to buckets anew once."""
        names = tuple(self._names[id(p)] for p in bucket.parameters())
        if names not in self._buckets:
            self._buckets = {known: rest for known, rest in self._buckets.items() if not set(known) & set(names)}
            joined = torch.cat([self._residuals[name] for name in names])
            parts = torch.split(joined, [self._residuals[name].numel() for name in names])
            self._residuals.update(zip(names, parts, strict=True))
            self._buckets[names] = joined
        return self._buckets[names]


def first_capacity(size: int, density: float) -> int:
    """Room for twice what is to be sent."""
    return min(size, max(math.ceil(2 * density * size), LEAST))


def encode(residual: Tensor, found: Tensor, threshold: float, capacity: int) -> Tensor:
    """A message of int32: a count, the threshold's bits, and that many elements as twice the index plus the sign.

    The largest go first where there is room for `capacity` alone of those `found`. What is sent is taken
    from `residual`.
    """
    if len(found) > capacity:
        found = found[residual[found].abs().topk(capacity).indices]
    values = residual[found]
    negative = values < 0
    message = torch.zeros(capacity + 2, dtype=torch.int32, device=residual.device)
    message[0] = len(found)
    message[1] = torch.tensor(threshold, dtype=torch.float32).view(torch.int32)
    message[2 : len(found) + 2] = (found << 1 | negative).to(torch.int32)
    sent = torch.tensor(threshold, dtype=torch.float32).item()
    residual[found] = values + torch.where(negative, sent, -sent)
    return message


def decode(messages: Tensor, out: Tensor) -> Tensor:
    """The mean of what `messages` (ranks, capacity + 2) say, written to `out`."""
    ranks, width = messages.shape
    thresholds = messages[:, 1].contiguous().view(torch.float32)
    entries = messages[:, 2:]
    given = torch.arange(width - 2, device=out.device) < messages[:, :1]
    values = thresholds[:, None] * (1 - 2 * (entries & 1)) * given / ranks
    return out.zero_().index_add_(0, (entries >> 1).reshape(-1).long(), values.reshape(-1).to(out.dtype))
