"""Gradient sharing by sign and threshold (Strom, "Scalable distributed DNN training using commodity GPU cloud
computing", Interspeech 2015), with a threshold that adapts itself, as DL4J's does.

Signs stand for the mean magnitude of the elements sent, as in 1-bit SGD (Seide et al., Interspeech 2014), where Strom
sends the threshold: it costs one number a message, and leaves less for later steps.
"""

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

from trainyard.schemas.specs.strategies import Threshold as Options
from trainyard.trainer.strategies import ddp
from trainyard.trainer.strategies.base import OnCommunication, Strategy, ring_allgather, ring_allreduce

LEAST = 16
GAIN = 0.1
"""Of the logarithm of the error, what one step corrects. Twice the threshold is exceeded by far fewer than half the
elements: with a gain of 0.5 they are too many and too few by turns, five times as many as wanted."""


@dataclass
class Encoding:
    """This rank's threshold for one bucket of `size` elements, and how often it was used."""

    size: int
    threshold: float
    steps: int = 0

    def adapt(self, found: int, wanted: int) -> None:
        """Move the threshold towards the one that `wanted` elements exceed; `found` of them did."""
        self.threshold *= min(max((found / wanted) ** GAIN, 0.5), 2.0)


class Threshold(Strategy[Options]):
    """What is not sent of a gradient stays in this rank's residual, and is added to the next one."""

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        self._residuals = {name: torch.zeros(p.numel(), device=p.device) for name, p in network.named_parameters()}
        self._names = {id(p): name for name, p in network.named_parameters()}
        self._buckets: dict[tuple[str, ...], Tensor] = {}
        self._encodings: dict[int, Encoding] = {}
        if self.world.size == 1:
            return network
        return ddp.parallel(network, self.world, self._exchange, on_communication, None)

    def micro_batch(self, network: nn.Module, last: bool) -> AbstractContextManager[None]:
        return ddp.no_sync_until_last(network, last)

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
        for number, (size, threshold, steps) in enumerate(mine["encodings"].tolist()):
            self._encodings[number] = Encoding(int(size), threshold, int(steps))

    def _exchange(self, bucket: GradBucket) -> Future[Tensor]:
        gradient, residual = bucket.buffer(), self._residual(bucket)
        encoding = self._encoding(bucket.index(), gradient.numel())
        residual.add_(gradient)
        room = capacity(gradient.numel(), self.options.density, self.world.size)
        if room == 0:
            gradient.copy_(residual)
            residual.zero_()
            self.bytes_sent += ring_allreduce(gradient.nbytes, self.world.size)
            return allreduce_hook(dist.group.WORLD, bucket)  # type: ignore[arg-type]
        if encoding.steps % self.options.clip_every == 0:
            bound = self.options.clip * encoding.threshold
            residual.clamp_(-bound, bound)
        encoding.steps += 1
        found = (residual.abs() > encoding.threshold).nonzero().squeeze(1)
        encoding.adapt(len(found), room)
        message = encode(residual, found, room)
        self.bytes_sent += ring_allgather(message.nbytes, self.world.size)
        received = message.new_empty(self.world.size * len(message))
        work = dist.all_gather_into_tensor(received, message, async_op=True)

        def decoded(gathered: Future[Any]) -> Tensor:
            gathered.value()
            return decode(received.view(self.world.size, -1), gradient)

        return work.get_future().then(decoded)  # type: ignore[union-attr]

    def _encoding(self, number: int, size: int) -> Encoding:
        known = self._encodings.get(number)
        if known is None or known.size != size:
            self._encodings[number] = Encoding(size, known.threshold if known else self.options.initial)
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


def capacity(size: int, density: float, ranks: int) -> int:
    """How many of `size` elements a message has room for; 0 where it takes fewer bytes to reduce all of them."""
    room = min(size, max(math.ceil(density * size), LEAST))
    return 0 if ring_allgather(room + 2, ranks) >= ring_allreduce(size, ranks) else room


def encode(residual: Tensor, found: Tensor, room: int) -> Tensor:
    """A message of int32: a count, the bits of the mean magnitude, and of each element twice the index plus the sign.

    The largest of those `found` go first where there is room for fewer. What is sent is taken from `residual`.
    """
    if len(found) > room:
        found = found[residual[found].abs().topk(room).indices]
    values = residual[found]
    negative = values < 0
    magnitude = values.abs().sum() / max(len(found), 1)
    message = torch.zeros(room + 2, dtype=torch.int32, device=residual.device)
    message[0] = len(found)
    message[1] = magnitude.view(torch.int32)
    message[2 : len(found) + 2] = (found << 1 | negative).to(torch.int32)
    residual[found] = values + torch.where(negative, magnitude, -magnitude)
    return message


def decode(messages: Tensor, out: Tensor) -> Tensor:
    """The mean of what `messages` (ranks, room + 2) say, written to `out`."""
    ranks, width = messages.shape
    magnitudes = messages[:, 1].contiguous().view(torch.float32)
    entries = messages[:, 2:]
    given = torch.arange(width - 2, device=out.device) < messages[:, :1]
    values = magnitudes[:, None] * (1 - 2 * (entries & 1)) * given / ranks
    return out.zero_().index_add_(0, (entries >> 1).reshape(-1).long(), values.reshape(-1).to(out.dtype))
