"""Load batches from the memory of a GPU, which holds the whole split.

In each epoch the host computes only which rows a batch has, 8 bytes a row, and the GPU gathers them. The order of the
rows is the one of other loaders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import numpy as np
import torch
from torch import Tensor

from trainyard.trainer.data.loader import Columns, Loader, LocalBatch
from trainyard.trainer.data.mixture import Mixture
from trainyard.trainer.data.order import Integers, Order, Window
from trainyard.trainer.data.prefetching import prefetch
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.data.weights import Weights

_READ_AHEAD_BLOCKS = 8
_PREFETCHED_WINDOWS = 4
_GATHERED_AS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Types that torch cannot gather before 2.15, and those of the same size that it can."""


class ResidentLoader(Loader):
    """Load the local batches of one worker from its device, to which the split is copied before the first batch.

    Rows must have a fixed size.

    Args:
        dataset: The split to read.
        order: The order of its rows.
        rank: The number of this worker.
        world: The number of workers.
        device: The device.
        weights: The weights of rows.
        on_progress: Called after each block that is copied.
        columns: The columns that batches have, by default all.
    """

    def __init__(
        self,
        dataset: SplitReader | Mixture,
        order: Order,
        rank: int,
        world: int,
        device: torch.device,
        weights: Weights | None = None,
        on_progress: Callable[[], None] = lambda: None,
        columns: Collection[str] | None = None,
    ) -> None:
        super().__init__(dataset, order, rank, world, weights=weights, columns=columns)
        self._device, self._on_progress = device, on_progress
        self._first_rows = np.cumsum([0, *dataset.blocks])
        self._values: Columns = {}
        self._block_weights: list[Integers] = []

    def _read_batches(self, epoch: int, start: int) -> Iterator[LocalBatch]:
        self._values = self._values or self._copy_split()
        windows = self.order.windows(epoch, self._rank, self._world, start)
        located = ((window, self._locate_rows(window, epoch)) for window in windows)
        for window, rows in prefetch(located, _PREFETCHED_WINDOWS):
            batches = rows.to(self._device, non_blocking=True).split_with_sizes(window.sizes)
            for step, batch in enumerate(batches, start=window.first_step):
                if step >= start:
                    columns = {
                        name: _gather(values, batch) if len(batch) else values[:1].clone()
                        for name, values in self._values.items()
                    }
                    yield LocalBatch(step, len(batch), self.order.size(step), columns)

    def _copy_split(self) -> Columns:
        blocks = self._dataset.blocks
        values: Columns = {}
        for number, (begin, rows) in enumerate(zip(self._first_rows.tolist(), blocks, strict=False)):
            self._dataset.prefetch(range(number, min(number + _READ_AHEAD_BLOCKS, len(blocks))))
            block = self._dataset.block(number)
            for name in (name for name in block if name not in self._dropped):
                copied = torch.from_numpy(np.array(block[name]))
                if name not in values:
                    shape = (int(self._first_rows[-1]), *copied.shape[1:])
                    values[name] = torch.empty(shape, dtype=copied.dtype, device=self._device)
                values[name][begin : begin + rows].copy_(copied)
            if self._weights:
                self._block_weights.append(self._weights.of(number, block))
            self._dataset.release({number})
            self._on_progress()
        return values

    def _sample_block(self, block: int, epoch: int) -> Integers:
        return self.order.sample_rows(block, epoch, self._block_weights[block])

    def _locate_rows(self, window: Window, epoch: int) -> Tensor:
        """Return the numbers of a window's rows in the split, one local batch after the other."""
        parts: list[Integers] = []
        for run in window.runs:
            rows = self._select_rows(run, epoch)
            numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            parts.append(numbers + self._first_rows[run.block])
        located = np.concatenate(parts) if parts else np.empty(0, np.int64)
        ordered = torch.from_numpy(located[window.gather(None)] if window.gather else located)
        return ordered.pin_memory() if self._device.type == "cuda" else ordered


def _gather(values: Tensor, rows: Tensor) -> Tensor:
    return values.view(_GATHERED_AS.get(values.dtype, values.dtype)).index_select(0, rows).view(values.dtype)
