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
    made from alive as its `base`, and so does a tensor of `torch.from_numpy`: when that array is finalized, nothing
    refers to its memory anymore. Arrays may be finalized in any thread: the methods of a deque are atomic.

    Args:
        max_free: How many unused blocks of memory are kept.
    """

    def __init__(self, max_free: int) -> None:
        self._free: deque[memoryview] = deque(maxlen=max_free)

    def take(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """Return an array of this shape and type, with arbitrary values."""
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            return np.empty(shape, dtype)
        block = self._find_block(size)
        if block is None:
            block = memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type]
        # The base of a view is the first array of its chain, and an array over a memoryview is the first one.
        base = np.frombuffer(block, dtype)
        weakref.finalize(base, self._free.append, block)
        return base.reshape(shape)

    def _find_block(self, size: int) -> memoryview | None:
        free = self._free
        try:
            for _ in range(len(free)):
                block = free.pop()  # the most recently used one, which may still be in a cache
                if block.nbytes == size:
                    return block
                free.appendleft(block)
        except IndexError:  # another thread was faster
            pass
        return None
