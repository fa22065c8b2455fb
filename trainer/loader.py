"""The loader: one rank's share of every global batch, as torch tensors.

A thread copies windows from the memory map into buffers; a batch is one gather from the buffer in
hand, or a slice of it. With a transform, or pinned memory, the gather runs in a second thread.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from trainer.dataset import Dataset, dtype
from trainer.order import Order, Window

T = TypeVar("T")
Columns = dict[str, Tensor]

_DEPTH = 2


@dataclass(frozen=True)
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
        for window, buffers in background(self._filled(windows), _DEPTH):
            gather = None if window.gather is None else torch.from_numpy(window.gather)
            for step, (a, b) in enumerate(pairwise(window.bounds.tolist()), start=window.first_step):
                if step < start:
                    continue
                if a == b:
                    columns = self._one_row()
                elif gather is None:
                    columns = {name: buffer[a:b] for name, buffer in buffers.items()}
                else:
                    rows = gather[a:b]
                    columns = {name: buffer.index_select(0, rows) for name, buffer in buffers.items()}
                yield Share(step, b - a, self.order.size(step), columns)

    def _one_row(self) -> Columns:
        return {name: torch.from_numpy(np.array(rows[:1])) for name, rows in self._dataset.block(0).items()}

    def _filled(self, windows: Iterator[Window]) -> Iterator[tuple[Window, Columns]]:
        """Windows with their rows. A buffer lives as long as a share that is a slice of it."""
        for window in windows:
            arrays = {c.name: np.empty((window.rows, *c.shape), dtype(c)) for c in self._dataset.columns}
            for run in window.runs:
                block = self._dataset.block(run.block)
                for name, array in arrays.items():
                    array[run.target : run.target + run.rows] = block[name][run.begin : run.begin + run.rows]
            yield window, {name: torch.from_numpy(array) for name, array in arrays.items()}

    def _finish(self, share: Share) -> Share:
        columns = self._transform(share.columns) if self._transform else share.columns
        if self._pin:
            columns = {name: column.pin_memory() for name, column in columns.items()}
        return Share(share.step, share.rows, share.total, columns)


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
