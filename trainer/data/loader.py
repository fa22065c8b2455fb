"""Load one worker's part of every global batch, as torch tensors.

Shuffled: a thread copies windows from the memory map into buffers, and each window is gathered into batch order.
Unshuffled: each window is copied when it is reached. With a transform, pinned memory, variable-length columns or
decoders, all of this runs in a thread ahead of the training loop, and further threads decode the rows of the next
batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column
from trainyard.trainer.data.mixture import Mixture
from trainyard.trainer.data.order import BUCKET_POOL_BYTES, POOL_BYTES, Integers, Order, Run, Window, window_steps
from trainyard.trainer.data.prefetching import prefetch
from trainyard.trainer.data.randomness import SeededRandom
from trainyard.trainer.data.reading import decoding, jagged
from trainyard.trainer.data.reading.blocks import Names, Rows, group_columns
from trainyard.trainer.data.reading.buffer_pool import BufferPool
from trainyard.trainer.data.reading.decoding import Augment, Decode, Decoder, PendingRows
from trainyard.trainer.data.reading.jagged import Jagged, Sequences
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.data.row_groups import Groups, as_jagged, concatenate, copy_rows, gather_rows, split, ungroup
from trainyard.trainer.data.weights import Weights

Columns = dict[str, Tensor]

FETCHED_BYTES = 256 << 20
"""The size of the blocks in memory above which no further blocks are fetched ahead."""
_PREFETCHED = 2
_PREFETCHED_WINDOWS = 4
_DECODED_AHEAD = 2
_SAMPLED_BLOCKS = 1024
_POSITIONS = "\0positions"
"""The column of row positions, block << 32 | row, while there are rows to decode."""
_DRAWS = "\0draws"
"""The same with the number of the row among those drawn from its block, which differs where a row is drawn twice."""


@dataclass(slots=True)
class LocalBatch:
    """The rows of a global batch that one worker trains on.

    A worker without rows of a batch still takes part in its communication: `rows` is 0, and the columns have one row,
    which has no effect.

    Attributes:
        step: The number of the global batch in its epoch.
        rows: The number of rows in this local batch.
        total: The number of rows in the global batch.
        columns: The tensors, by column.
    """

    step: int
    rows: int
    total: int
    columns: Columns


class Loader:
    """Load the local batches of one worker.

    Args:
        dataset: The split to read.
        order: The order of its rows.
        rank: The number of this worker.
        world: The number of workers.
        transform: A function of the columns of a batch that returns the columns to train on.
        pin: Whether to copy batches to pinned memory, for a GPU.
        sequences: Whether variable-length columns become "padded" or "nested" tensors.
        decode: The decoder of each binary column.
        augment: A random change of decoded rows, by column.
        weights: The weights of rows.
        columns: The columns that batches have, by default all. The others are read for `weights` and the order.

    Raises:
        TrainyardError: A binary column has no decoder, `bucket_by` is not a variable-length column, or a column has the
            name of another one's mask.
    """

    def __init__(
        self,
        dataset: SplitReader | Mixture,
        order: Order,
        rank: int = 0,
        world: int = 1,
        transform: Callable[[Columns], Columns] | None = None,
        pin: bool = False,
        sequences: Sequences = "padded",
        decode: Mapping[str, Decode] = MappingProxyType({}),
        augment: Mapping[str, Augment] = MappingProxyType({}),
        weights: Weights | None = None,
        columns: Collection[str] | None = None,
    ) -> None:
        decoding.check_decoders(dataset.columns, decode, augment)
        kinds = {column.name: column.kind for column in dataset.columns}
        _check_lengths(kinds, order.bucket_by)
        self.order = order
        self._dataset = dataset
        self._sequences = sequences
        self._weights = weights
        self._sample = lru_cache(_SAMPLED_BLOCKS)(self._sample_block)
        self._dropped = () if columns is None else tuple(name for name in kinds if name not in columns)
        self._has_lists = "list" in kinds.values()
        first = dataset.block(0) if decode else {}
        self._decoders = {
            name: Decoder(name, function, augment.get(name), order.seed, as_jagged(first[name])[:1], self._locate)
            for name, function in decode.items()
            if name in kinds
        }
        self._rank, self._world = rank, world
        self._transform = transform
        self._pin = pin
        self._groups = group_columns(dataset.columns)
        self._max_blocks = len(self._groups) * (_PREFETCHED + 2)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_sample"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._sample = lru_cache(_SAMPLED_BLOCKS)(self._sample_block)

    def column(self, name: str) -> Column:
        """Return a column as it is in a batch: decoded, if it is binary."""
        if name in self._decoders:
            return self._decoders[name].column
        return next(column for column in self._dataset.columns if column.name == name)

    def read_first_rows(self, names: Iterable[str], count: int) -> dict[str, Rows | list[bytes]]:
        """Return columns of up to `count` rows at the beginning of the split, as they are stored."""
        block = self._dataset.block(0)
        kinds = {column.name: column.type for column in self._dataset.columns}
        return {name: copy_rows(block[name][:count], kinds[name] == "binary") for name in names}

    def epoch(self, epoch: int, step: int = 0) -> Iterator[LocalBatch]:
        """Yield the local batches of an epoch, from global batch `step` on."""
        batches = self._read_batches(epoch, step)
        if self._decoders:
            batches = self._decode_ahead(batches, epoch)
        in_background = self._transform or self._pin or self._has_lists or self._decoders
        finished = (self._finish(batch, epoch) for batch in batches)
        return prefetch(finished, _PREFETCHED) if in_background else batches

    def _read_batches(self, epoch: int, start: int) -> Iterator[LocalBatch]:
        windows = self.order.windows(epoch, self._rank, self._world, start)
        windows = self._prefetch_blocks(windows)
        # Pools end with the epoch, so that no memory stays allocated during validation.
        copy_pool, batch_pool = BufferPool(self._max_blocks), BufferPool(self._max_blocks)
        copied = self._copy_windows(windows, epoch, copy_pool)
        for window, gather, rows in prefetch(copied, _PREFETCHED) if self.order.shuffle else copied:
            ordered = rows if gather is None else gather_rows(rows, gather, batch_pool)
            names = tuple(chain.from_iterable(ordered))
            parts = [split(group, values, window.sizes) for group, values in ordered.items()]
            steps = range(window.first_step, window.first_step + len(window.sizes))
            for step, size, *groups in zip(steps, window.sizes, *parts, strict=True):
                if step >= start:
                    tensors = groups if len(groups) == len(names) else ungroup(ordered, groups)
                    columns = dict(zip(names, tensors, strict=True)) if size else self._read_one_row()
                    for name in self._dropped:
                        del columns[name]
                    yield LocalBatch(step, size, self.order.size(step), columns)

    def _prefetch_blocks(self, windows: Iterator[Window]) -> Iterator[Window]:
        """Yield windows whose blocks the dataset began to read a few windows earlier.

        Blocks that are fetched by themselves are dropped after the window that is followed by none with the block, and
        no more windows are fetched ahead than fit into `FETCHED_BYTES`.
        """
        ahead: deque[tuple[Window, set[int]]] = deque()

        def take() -> Iterator[Window]:
            window, blocks = ahead.popleft()
            try:
                yield window
            finally:
                self._dataset.release(blocks.difference(*(later for _, later in ahead)))

        try:
            for window in windows:
                ahead.append((window, {run.block for run in window.runs}))
                self._dataset.prefetch(ahead[-1][1])
                while len(ahead) > _PREFETCHED_WINDOWS or (len(ahead) > 1 and self._is_full()):
                    yield from take()
            while ahead:
                yield from take()
        finally:
            for _, blocks in ahead:
                self._dataset.release(blocks)

    def _is_full(self) -> bool:
        return self._dataset.fetched_bytes > FETCHED_BYTES

    def _read_one_row(self) -> Columns:
        first = {name: rows[:1] for name, rows in self._dataset.block(0).items()}
        if self._decoders:
            first[_POSITIONS] = first[_DRAWS] = np.zeros(1, np.int64)
        return {name: r if isinstance(r, Jagged) else torch.from_numpy(np.array(r)) for name, r in first.items()}  # type: ignore[misc]

    def _copy_windows(
        self, windows: Iterator[Window], epoch: int, copy_pool: BufferPool
    ) -> Iterator[tuple[Window, Integers | None, Groups]]:
        """Yield windows with the order of their rows, and the rows, copied run by run."""
        for window in windows:
            runs = [(self._dataset.block(run.block), self._select_rows(run, epoch)) for run in window.runs]
            parts: dict[Names, list[Any]] = {
                names: [block.select(names, rows) for block, rows in runs] for names in self._groups if runs
            }
            if self._decoders and runs:
                numbers = [np.arange(self._dataset.blocks[run.block]) for run in window.runs]
                selected = zip(window.runs, numbers, runs, strict=True)
                parts[_POSITIONS,] = [(run.block << 32) + number[rows] for run, number, (_, rows) in selected]
                draws = (np.arange(run.begin, run.begin + run.rows) for run in window.runs)
                parts[_DRAWS,] = [(run.block << 32) + draw for run, draw in zip(window.runs, draws, strict=True)]
            rows = {names: concatenate(names, arrays, copy_pool) for names, arrays in parts.items()}
            yield window, window.gather(self._get_lengths(rows)) if window.gather else None, rows

    def _select_rows(self, run: Run, epoch: int) -> slice | Integers:
        """Return the rows of its block that a run has."""
        rows = slice(run.begin, run.begin + run.rows)
        return self._sample(run.block, epoch)[rows] if self._weights else rows

    def _sample_block(self, block: int, epoch: int) -> Integers:
        assert self._weights is not None
        return self.order.sample_rows(block, epoch, self._weights.of(block, self._dataset.block(block)))

    def _get_lengths(self, rows: Groups) -> Integers | None:
        column = rows.get((self.order.bucket_by or "",))
        return column.lengths if isinstance(column, Jagged) else None

    def _decode_ahead(self, batches: Iterator[LocalBatch], epoch: int) -> Iterator[LocalBatch]:
        """Yield batches whose rows threads decode, and those of the next few batches."""
        ahead: deque[LocalBatch] = deque()
        for batch in batches:
            columns: dict[str, Any] = dict(batch.columns)
            positions, draws = columns.pop(_POSITIONS).numpy(), columns.pop(_DRAWS).numpy()
            for name, decoder in self._decoders.items():
                columns[name] = decoder.submit(columns[name], positions, draws, epoch)
            ahead.append(LocalBatch(batch.step, batch.rows, batch.total, columns))
            if len(ahead) > _DECODED_AHEAD:
                yield ahead.popleft()
        yield from ahead

    def _locate(self, position: int) -> str:
        return self._dataset.locate(position >> 32, position & 0xFFFFFFFF)

    def _finish(self, batch: LocalBatch, epoch: int) -> LocalBatch:
        columns: Columns = {}
        for name, rows in batch.columns.items():
            columns |= self._to_tensors(name, rows)
        if self._transform:
            with SeededRandom((self.order.seed, epoch, batch.step, self._rank)):
                columns = self._transform(columns)
        if self._pin:
            columns = {name: column.pin_memory() for name, column in columns.items()}
        return LocalBatch(batch.step, batch.rows, batch.total, columns)

    def _to_tensors(self, name: str, rows: Tensor | Jagged | PendingRows) -> Columns:
        if isinstance(rows, Jagged):
            return jagged.to_tensors(name, rows, self._sequences)
        return {name: rows.result() if isinstance(rows, PendingRows) else rows}


def build_order(
    data: SplitReader | Mixture, batch: int, seed: int, shuffle: bool, bucket_by: str | None, weights: Weights | None
) -> Order:
    """Return the order of `data` in global batches of `batch` rows, or of all its rows if it has fewer."""
    window = window_steps(min(batch, data.rows), data.row_bytes, BUCKET_POOL_BYTES if bucket_by else POOL_BYTES)
    blocks, groups = weights.blocks if weights else (), data.groups if isinstance(data, Mixture) else ()
    return Order(data.blocks, min(batch, data.rows), seed, window, shuffle, bucket_by, blocks, groups)


def split_batch(columns: Columns, rows: int, count: int, exactly: bool) -> Iterator[tuple[int, Columns]]:
    """Yield `columns` in micro-batches, each with its number of rows that count.

    Args:
        columns: The columns of a local batch.
        rows: The number of its rows that count, 0 for a worker without rows.
        count: The largest number of micro-batches.
        exactly: Whether there are as many: some then have one row, which does not count.
    """
    count = count if exactly else max(min(count, rows), 1)
    if count == 1:
        yield rows, columns
        return
    for number in range(count):
        start, end = rows * number // count, rows * (number + 1) // count
        row = min(start, max(rows - 1, 0))
        yield (
            end - start,
            {name: jagged.slice_rows(column, row, max(end, row + 1)) for name, column in columns.items()},
        )


def _check_lengths(kinds: Mapping[str, str], bucket_by: str | None) -> None:
    lists = [name for name, kind in kinds.items() if kind == "list"]
    if bucket_by is not None and bucket_by not in lists:
        raise TrainyardError(
            f"bucket_by={bucket_by!r} is not a variable-length column of the batches. "
            + (f"Write one of {', '.join(lists)}." if lists else "There is none: remove bucket_by.")
        )
    for name in lists:
        if jagged.mask_name(name) in kinds:
            raise TrainyardError(
                f"column {jagged.mask_name(name)!r} has the name of the mask of column {name!r}; rename it."
            )
