"""A pool of memory for arrays that are filled, handed on, and dropped again."""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque

import numpy as np

from trainyard.trainer.data.reading.jagged import Array

MAX_EXAMINED = 8
"""How many blocks are examined before memory is allocated: windows end in order, so that the oldest ones are unused."""


class BufferPool:
    """Arrays whose memory is reused once they, and all their views and tensors, are gone.

    New memory costs its zeroing by the kernel, as much again as the copy into it. A view keeps the array that it was
    made from alive as its `base`, and so does a tensor of `torch.from_numpy`: when the weak reference to that array is
    dead, nothing refers to its memory anymore. (A callback by `weakref.finalize` takes several times as long as looking
    at the reference.)

    Args:
        max_blocks: How many blocks of memory the pool keeps. A block that is dropped while it is in use is freed later.
    """

    def __init__(self, max_blocks: int) -> None:
        self._max_blocks, self._count = max_blocks, 0
        self._blocks: dict[int, deque[tuple[memoryview, weakref.ref[Array]]]] = {}  # by size, the last used size last
        self._lock = threading.Lock()

    def take(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """Return an array of this shape and type, with arbitrary values."""
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            return np.empty(shape, dtype)
        with self._lock:
            blocks = self._blocks[size] = self._blocks.pop(size, deque())
            block = self._pop_unused(blocks)
            if block is None:
                block = memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type]
                self._count += 1
            # The base of a view is the first array of its chain, and an array over a memoryview is the first one.
            base = np.frombuffer(block, dtype)
            blocks.append((block, weakref.ref(base)))
            self._drop_oldest()
        return base.reshape(shape)

    @staticmethod
    def _pop_unused(blocks: deque[tuple[memoryview, weakref.ref[Array]]]) -> memoryview | None:
        """Return a block that nothing refers to; those that are in use become the last ones."""
        for _ in range(min(len(blocks), MAX_EXAMINED)):
            block, array = blocks.popleft()
            if array() is None:
                return block
            blocks.append((block, array))
        return None

    def _drop_oldest(self) -> None:
        """Drop a block of the size that was not used for the longest time, if there are too many."""
        if self._count > self._max_blocks:
            size, blocks = next(iter(self._blocks.items()))
            blocks.popleft()
            self._count -= 1
            if not blocks:
                del self._blocks[size]
