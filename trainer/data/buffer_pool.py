"""A pool of memory for arrays that are filled, handed on, and dropped again."""

from __future__ import annotations

import math
import weakref
from collections import deque

import numpy as np

from trainyard.trainer.data.jagged import Array


class BufferPool:
    """Arrays whose memory is reused once they, and all their views and tensors, are gone.

    New memory costs its zeroing by the kernel, as much again as the copy into it. A view keeps the array that it was
    made from alive as its `base`, and so does a tensor of `torch.from_numpy`: when the weak reference to that array is
    dead, nothing refers to its memory anymore. (A callback by `weakref.finalize` takes several times as long as looking
    at the reference.) A block is out of the pool while a thread examines it, so that no two threads get the same one.

    Args:
        max_blocks: How many blocks of memory the pool keeps. A block that is dropped while it is in use is freed later.
    """

    def __init__(self, max_blocks: int) -> None:
        self._blocks: deque[tuple[memoryview, weakref.ref[Array]]] = deque(maxlen=max_blocks)

    def take(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """Return an array of this shape and type, with arbitrary values."""
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            return np.empty(shape, dtype)
        block = self._pop_unused(size)
        if block is None:
            block = memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type]
        # The base of a view is the first array of its chain, and an array over a memoryview is the first one.
        base = np.frombuffer(block, dtype)
        self._blocks.append((block, weakref.ref(base)))
        return base.reshape(shape)

    def _pop_unused(self, size: int) -> memoryview | None:
        for _ in range(len(self._blocks)):
            try:
                block, array = self._blocks.popleft()
            except IndexError:  # other threads examine the remaining blocks
                return None
            if block.nbytes == size and array() is None:
                return block
            self._blocks.append((block, array))
        return None
