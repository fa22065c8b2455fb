"""Compare the replicas of a model: weights, buffers and the state of the optimizer, which all workers have in common.

Gradients are reduced, and everything else that changes a weight happens on each worker by itself. Where it is not the
same on all, the workers train different models, and the metrics are not those of the model that is saved.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from trainyard.errors import TrainyardError
from trainyard.trainer.checkpointing.checkpoints import Position
from trainyard.trainer.world import World

ROUNDING = 1e-4
"""The difference of two replicas, relative to the largest number of a tensor, that GPUs of several kinds may cause."""
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers by their size in bytes."""
DIGESTED = 1 << 22
"""How many words are added up at a time: they are copied as integers of eight bytes."""
CAUSES = (
    "Each worker changes it by something else than the gradient, which is the mean of all workers: forward() assigns "
    "weights, requires_grad changes while it trains, a checkpointed module is used several times (use_reentrant=False "
    "is right), or the state differs by rank."
)


class Replicas:
    """The tensors that all workers of a training have in common.

    Args:
        network: The network, whose parameters may be shards.
        optimizers: Its optimizers, as far as all workers have the same state of them.
        world: The workers.
        causes: Why they may differ, for errors.
    """

    def __init__(self, network: nn.Module, optimizers: Sequence[Optimizer], world: World, causes: str = CAUSES) -> None:
        self._network, self._optimizers, self._world, self._causes = network, optimizers, world, causes
        self._parameters = dict(network.named_parameters())
        self._trained = self._list_trained()
        self._equal = "the start"

    def check_trained(self) -> None:
        """Check that the parameters that require a gradient are those that the strategy reduces.

        Raises:
            TrainyardError: Another one does by now, whose gradient would be that of one worker.
        """
        if self._world.size > 1 and (now := self._list_trained()) != self._trained:
            name = next(n for n, is_now, was in zip(self._parameters, now, self._trained, strict=True) if is_now != was)
            raise TrainyardError(
                f"requires_grad of {_shorten(name)!r} changed while the model trains. Several workers reduce the "
                "gradients of the parameters that were trained at the start. Let it require a gradient from the start, "
                "with a learning rate of 0 for as long as it is to stay as it is, or train in two tasks, the second "
                "with start_from."
            )

    def check(self, position: Position, with_buffers: bool) -> str | None:
        """Compare the tensors of all workers. All of them must call this.

        Args:
            position: Where the training is.
            with_buffers: Whether buffers are the same by now, such as those of batch normalization.

        Returns:
            A sentence if some differ by rounding; all workers have those of rank 0 then.

        Raises:
            TrainyardError: Some differ by more; the message names the first of them.
        """
        if self._world.size == 1:
            return None
        tensors = dict(self._list_tensors(with_buffers))
        digests = dict(zip(tensors, compute_digests(tensors.values()), strict=True))
        here = f"epoch {position.epoch + 1}, step {position.step}"
        equal, self._equal = self._equal, here
        if self._have_all(digests):
            return None
        by_rank_and_name = self._world.gather(digests)
        names = {name: None for of_rank in by_rank_and_name for name in of_rank}
        differing = {}
        for name in names:
            values = [of_rank.get(name) for of_rank in by_rank_and_name]
            if None in values:
                raise TrainyardError(
                    f"the workers do not train alike any more: since {equal}, rank {values.index(None)} has no "
                    f"{_shorten(name)!r}, which other workers have (found after {here}). {self._causes}"
                )
            if len(set(values)) > 1:
                differing[name] = tensors[name]
        for name, tensor in differing.items():
            by_rank = self._measure_differences(tensor)
            rank = max(range(len(by_rank)), key=by_rank.__getitem__)
            if by_rank[rank] == math.inf:  # the training diverged, which other checks find
                continue
            largest_number = self._world.max(_get_largest(tensor)).item()
            if not by_rank[rank] <= ROUNDING * largest_number or not tensor.is_floating_point():
                raise TrainyardError(
                    f"the workers do not have the same model any more: since {equal}, {_shorten(name)!r} of rank "
                    f"{rank} differs from that of rank 0 by {by_rank[rank]:.3g} (found after {here}; "
                    f"{len(differing)} of {len(tensors)} tensors differ). {self._causes}"
                )
        for tensor in differing.values():
            tensor.copy_(self._get_from_main(tensor))
        if not differing:  # in another order
            return None
        first = _shorten(next(iter(differing)))
        return (
            f"{len(differing)} of {len(tensors)} tensors, such as {first!r}, differed between workers by rounding, as "
            "with GPUs of several kinds; all workers went on with those of rank 0."
        )

    def _have_all(self, digests: Mapping[str, int]) -> bool:
        """Return whether all workers have the same digests."""
        text = json.dumps(digests, sort_keys=True).encode()
        total = int.from_bytes(hashlib.sha256(text).digest()[:7], "big")
        largest, smallest = self._world.max(torch.tensor([total, -total])).tolist()
        return bool(largest == -smallest)

    def _list_trained(self) -> list[bool]:
        return [parameter.requires_grad for parameter in self._parameters.values()]

    def _list_tensors(self, with_buffers: bool) -> Iterator[tuple[str, Tensor]]:
        """Yield the names and values of the tensors that are no shards."""
        for name, parameter in self._parameters.items():
            yield from _list_whole(name, parameter.detach())
        if with_buffers:
            saved = self._network.state_dict(keep_vars=True)
            for name, buffer in self._network.named_buffers():
                if name in saved and buffer.is_floating_point():  # integers may count what one worker has done
                    yield from _list_whole(name, buffer.detach())
        names = {id(parameter): _shorten(name) for name, parameter in self._parameters.items()}
        for owner, state in chain.from_iterable(optimizer.state.items() for optimizer in self._optimizers):
            for key, value in state.items():
                if isinstance(value, Tensor):
                    yield from _list_whole(f"{key} of {names.get(id(owner), 'a parameter')}", value.detach())

    def _measure_differences(self, tensor: Tensor) -> list[float]:
        """Return for each rank by how much its tensor differs from that of rank 0 at most."""
        of_main = self._get_from_main(tensor)
        difference = (of_main.double() - tensor.to(of_main.device).double()).abs().max()
        by_rank = torch.zeros(self._world.size, dtype=torch.float64)
        by_rank[self._world.rank] = difference.nan_to_num(nan=torch.inf)
        return self._world.max(by_rank).tolist()

    def _get_from_main(self, tensor: Tensor) -> Tensor:
        """Return this tensor of rank 0, on the device."""
        copy = tensor.to(self._world.device, copy=True).contiguous()
        dist.broadcast(copy, 0)
        return copy


def compute_digests(tensors: Iterable[Tensor]) -> list[int]:
    """Return a number for each tensor, which differs if its values do, but for rare coincidences."""
    digests = [_compute_digest(tensor) for tensor in tensors]
    by_device = {digest.device: [d for d in digests if d.device == digest.device] for digest in digests}
    copied = {device: iter(torch.stack(values).tolist()) for device, values in by_device.items()}
    return [next(copied[digest.device]) for digest in digests]


def _compute_digest(tensor: Tensor) -> Tensor:
    """Add up the words of a tensor's memory, each with a weight by its place."""
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    words = values.contiguous().view(-1).view(WORDS[values.itemsize]) if values.numel() else values.new_zeros(1).long()
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    weights = _build_weights(min(DIGESTED, 1 << len(words).bit_length()), words.dtype, tensor.device)
    for piece in torch.split(words, DIGESTED):
        total = total * 31 + (piece * weights[: len(piece)]).sum(dtype=torch.int64)
    return total % 2**62


@lru_cache(maxsize=8)
def _build_weights(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the weight of each place: it is odd, so that the product of a word, without its overflow, is its own."""
    return (torch.arange(count, device=device) % 65521 * 2 + 1).to(dtype)


def _list_whole(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    if not isinstance(tensor, DTensor) and not tensor.is_sparse and not tensor.is_quantized:
        yield name, tensor


def _get_largest(tensor: Tensor) -> Tensor:
    return (
        tensor.double().abs().max().nan_to_num(nan=0.0).cpu()
        if tensor.numel()
        else torch.zeros((), dtype=torch.float64)
    )


def _shorten(name: str) -> str:
    """Return the name that a parameter of the network has in the recipe's model."""
    return name.removeprefix("model.")
