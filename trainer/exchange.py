"""Exchange values between workers. They are sent as `torch.save` writes them, and loaded without unpickling.

torch's own collectives of objects unpickle what they receive, so that whoever gets into a connection runs code.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _get_object_coll_device

from trainyard.errors import TrainyardError

MAX_BYTES = 1 << 28
"""The size of a value that a worker may send."""

T = TypeVar("T")
Group = dist.ProcessGroup | None
"""A process group; None is the default one."""


def all_gather(value: T, group: Group = None) -> list[T]:
    """Return the `value` of each worker, by rank.

    Args:
        value: Numbers, strings, tensors, and their types, in lists, tuples and dicts: what
            `torch.load(weights_only=True)` loads.
        group: The workers.

    Raises:
        TrainyardError: A value is larger than `MAX_BYTES`.
    """
    own, device = _encode(value), _get_object_coll_device(group)
    sizes = _all_gather_sizes(len(own), group)
    padded = _pad(own, max(sizes), device)
    received = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(received, padded, group=group)
    return [_decode(data[:size]) for data, size in zip(received, sizes, strict=True)]


def gather(value: T, group: Group = None) -> list[T] | None:
    """Return the `value` of each worker on rank 0, and None on the others. See `all_gather`."""
    own, device = _encode(value), _get_object_coll_device(group)
    sizes = _all_gather_sizes(len(own), group)
    padded = _pad(own, max(sizes), device)
    received = [torch.empty_like(padded) for _ in sizes] if dist.get_rank(group) == 0 else None
    dist.gather(padded, received, group=group, group_dst=0)
    if received is None:
        return None
    return [_decode(data[:size]) for data, size in zip(received, sizes, strict=True)]


def broadcast(value: T, group: Group = None) -> T:
    """Return the `value` of rank 0 on all workers. See `all_gather`."""
    own, device = _encode(value if dist.get_rank(group) == 0 else None), _get_object_coll_device(group)
    [size] = _broadcast_sizes([len(own)], group)
    data = _pad(own[:size], size, device)
    dist.broadcast(data, group=group, group_src=0)
    return _decode(data)  # type: ignore[no-any-return]


def scatter(values: Sequence[T] | None, group: Group = None) -> T:
    """Return one of the `values` of rank 0 on each worker: the first one on rank 0. See `all_gather`."""
    device, workers = _get_object_coll_device(group), dist.get_world_size(group)
    parts = [_encode(value) for value in values] if values is not None else []
    sizes = _broadcast_sizes([len(part) for part in parts] or [0] * workers, group)
    own = torch.empty(max(sizes), dtype=torch.uint8, device=device)
    dist.scatter(own, [_pad(part, len(own), device) for part in parts] or None, group=group, group_src=0)
    return _decode(own[: sizes[dist.get_rank(group)]])  # type: ignore[no-any-return]


def _all_gather_sizes(own: int, group: Group) -> list[int]:
    size = torch.tensor([own], device=_get_object_coll_device(group))
    received = [torch.empty_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(received, size, group=group)
    return _check_sizes(torch.cat(received).tolist())


def _broadcast_sizes(of_main: list[int], group: Group) -> list[int]:
    """Return the sizes that rank 0 has; other workers pass a list of the same length."""
    sizes = torch.tensor(of_main, device=_get_object_coll_device(group))
    dist.broadcast(sizes, group=group, group_src=0)
    return _check_sizes(sizes.tolist())


def _check_sizes(sizes: list[int]) -> list[int]:
    if not 0 <= min(sizes) <= max(sizes) <= MAX_BYTES:
        raise TrainyardError(
            f"a worker sends a value of {max(sizes):,} bytes to the others; {MAX_BYTES:,} are allowed. Usual causes "
            "are a metric that keeps all rows, and a model of very many tensors."
        )
    return sizes


def _encode(value: Any) -> Tensor:
    stream = io.BytesIO()
    torch.save(value, stream)
    return torch.frombuffer(stream.getbuffer(), dtype=torch.uint8)


def _pad(data: Tensor, size: int, device: str) -> Tensor:
    padded = torch.zeros(size, dtype=torch.uint8)
    padded[: len(data)] = data
    return padded.to(device)


def _decode(data: Tensor) -> Any:
    return torch.load(io.BytesIO(data.cpu().numpy().tobytes()), weights_only=True)
