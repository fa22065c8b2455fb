"""The loader: one rank's share of every global batch, as torch tensors.

Shuffled, a thread copies windows from the memory map into buffers, and the window in hand is
gathered into the order of its batches; unshuffled, a window is copied when its turn comes.
With a transform, or pinned memory, all this runs in a thread ahead of the training loop.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.dataset import Block, Dataset
from trainer.order import Integers, Order, Window

T = TypeVar("T")
Columns = dict[str, Tensor]
Array = NDArray[np.generic]

_DEPTH = 2
_ANNOUNCED = 4
_UNUSED = 3
"""References to an array that a pool alone holds: its own, the loop's, and the call's that counts them."""


@dataclass(slots=True)
class Share:
    """A rank's rows of global batch `step`: `rows` of its `total`.

    A rank with no rows of a batch still takes part in its allreduce: it has `rows` 0, and columns
    that hold one row, to be weighted by zero.
    """

    step: int
    rows: int
    total: int
    columns: Columns


class Loader:
    """Reads `dataset` in `order`, as `rank` of `world`."""

    def __init__(
        self,
        dataset: Dataset,
        order: Order,
        rank: int = 0,
        world: int = 1,
        transform: Callable[[Columns], Columns] | None = None,
        pin: bool = False,
    ) -> None:
        self.order = order
        self._dataset = dataset
        self._rank, self._world = rank, world
        self._transform = transform
        self._pin = pin

    def epoch(self, epoch: int, step: int = 0) -> Iterator[Share]:
        """The shares of one epoch, from global batch `step` on."""
        shares = self._shares(epoch, step)
        return background(map(self._finish, shares), _DEPTH) if self._transform or self._pin else shares

    def _shares(self, epoch: int, start: int) -> Iterator[Share]:
        windows = self.order.windows(epoch, self._rank, self._world, start)
        if self._dataset.remote:
            windows = self._announced(windows)
        kept = len(self._dataset.columns) * (_DEPTH + 2)
        fillable, gatherable = _Buffers(kept), _Buffers(kept)
        filled = self._filled(windows, fillable)
        for window, rows in background(filled, _DEPTH) if self.order.shuffle else filled:
            dealt = rows if window.gather is None else _gathered(rows, window.gather, gatherable)
            names = tuple(dealt)
            parts = [torch.from_numpy(values).split_with_sizes(window.sizes) for values in dealt.values()]
            steps = range(window.first_step, window.first_step + len(window.sizes))
            for step, size, *tensors in zip(steps, window.sizes, *parts, strict=True):
                if step >= start:
                    columns = dict(zip(names, tensors, strict=True)) if size else self._one_row()
                    yield Share(step, size, self.order.size(step), columns)

    def _announced(self, windows: Iterator[Window]) -> Iterator[Window]:
        """Windows, the blocks of each announced to the dataset a few windows before its turn."""
        ahead: deque[Window] = deque()
        for window in windows:
            self._dataset.announce(run.block for run in window.runs)
            ahead.append(window)
            if len(ahead) > _ANNOUNCED:
                yield ahead.popleft()
        yield from ahead

    def _one_row(self) -> Columns:
        return {name: torch.from_numpy(np.array(rows[:1])) for name, rows in self._dataset.block(0).items()}

    def _filled(self, windows: Iterator[Window], buffers: _Buffers) -> Iterator[tuple[Window, Block]]:
        """Windows with their rows, copied run by run."""
        for window in windows:
            runs = [(self._dataset.block(run.block), slice(run.begin, run.begin + run.rows)) for run in window.runs]
            parts = {c.name: [block[c.name][rows] for block, rows in runs] for c in self._dataset.columns if runs}
            yield window, {name: _joined(arrays, buffers) for name, arrays in parts.items()}

    def _finish(self, share: Share) -> Share:
        columns = self._transform(share.columns) if self._transform else share.columns
        if self._pin:
            columns = {name: column.pin_memory() for name, column in columns.items()}
        return Share(share.step, share.rows, share.total, columns)


class _Buffers:
    """Arrays to fill, each given out again once nothing else refers to it.

    Fresh memory costs its zeroing, as much again as the copy into it. A tensor made from an array
    refers to it, so an array is in use for as long as any part of any share is.
    """

    def __init__(self, kept: int) -> None:
        self._arrays: deque[Array] = deque(maxlen=kept)

    def get(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        for array in self._arrays:
            if array.shape == shape and array.dtype == dtype and sys.getrefcount(array) == _UNUSED:
                return array
        self._arrays.append(np.empty(shape, dtype))
        return self._arrays[-1]


def _joined(parts: list[Array], buffers: _Buffers) -> Array:
    rows = sum(len(part) for part in parts)
    return np.concatenate(parts, out=buffers.get((rows, *parts[0].shape[1:]), parts[0].dtype))


def _gathered(rows: Block, gather: Integers, buffers: _Buffers) -> Block:
    """The rows in the order of the batches: one gather for a window costs less than one for each batch."""
    out = {name: buffers.get(values.shape, values.dtype) for name, values in rows.items()}
    return {name: values.take(gather, 0, out=out[name], mode="clip") for name, values in rows.items()}


def background(items: Iterator[T], depth: int) -> Iterator[T]:
    """Iterate `items` in a thread, at most `depth` ahead. Its exception is raised here, in order."""
    ahead: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: T | None, error: BaseException | None) -> bool:
        while not stopped.is_set():
            try:
                ahead.put((item, error), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item, None):
                    return
            put(None, StopIteration())
        except BaseException as error:
            put(None, error)

    thread = threading.Thread(target=work, name="loader", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ahead.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()
