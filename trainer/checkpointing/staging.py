"""Copies of the state of a training in CPU memory, which are written while training continues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

Path = tuple[Any, ...]


class Staging:
    """CPU memory for one copy of a state, reused from checkpoint to checkpoint; pinned if the state is on a GPU.

    Of a sharded tensor the shard of this worker is copied, so that the GPU needs no further memory.
    """

    def __init__(self) -> None:
        self._buffers: dict[Path, Tensor] = {}

    def copy(self, state: Any) -> Any:
        """Return `state` with all tensors copied; the copies are valid until the next call."""
        buffers: dict[Path, Tensor] = {}

        def copy_tensor(path: Path, tensor: Tensor) -> Tensor:
            buffer = self._buffers.get(path)
            if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
                buffer = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
            buffers[path] = buffer
            get_local(buffer).copy_(get_local(tensor), non_blocking=True)
            return buffer

        copied = _map_tensors(state, (), copy_tensor)
        self._buffers = buffers
        if torch.cuda.is_available():
            torch.cuda.current_stream().synchronize()
        return copied


def copy_tensors(state: Any) -> Any:
    """Return `state` with all tensors copied to new CPU memory. Of a sharded tensor the own shard is copied.

    Memory that is pinned for this returns to torch with the copy, which uses it again.
    """
    return Staging().copy(state)


def _map_tensors(value: Any, path: Path, copy: Callable[[Path, Tensor], Tensor]) -> Any:
    """Return a nested state with each tensor replaced by `copy` of its path and itself."""
    if isinstance(value, Tensor):
        return copy(path, value.detach())
    if isinstance(value, Mapping):
        return {key: _map_tensors(item, (*path, key), copy) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_map_tensors(item, (*path, number), copy) for number, item in enumerate(value))
    return value


def get_local(tensor: Tensor) -> Tensor:
    """Return the part of a sharded tensor that this worker has, or any other tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
