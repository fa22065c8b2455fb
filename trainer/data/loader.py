"""The loader: one rank's share of every global batch, as torch tensors.

Shuffled, a thread copies windows from the memory map into buffers, and the window in hand is
gathered into the order of its batches; unshuffled, a window is copied when its turn comes.
With a transform, pinned memory, rows that differ in length or rows to decode, all this runs in a thread ahead
of the training loop; threads of their own decode the rows of a few shares ahead.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainyard.errors import TrainyardError
from trainyard.schemas.manifest import Column
from trainyard.trainer.data import decoding, jagged
from trainyard.trainer.data.background import background
from trainyard.trainer.data.decoding import Augment, Decode, Decoder, Pending
from trainyard.trainer.data.jagged import Array, Jagged, Sequences
from trainyard.trainer.data.mixture import Mixture
from trainyard.trainer.data.order import BUCKET_POOL_BYTES, POOL_BYTES, Integers, Order, Run, Window, window_rows
from trainyard.trainer.data.split_reader import OPEN_BLOCKS, Block, Rows, SplitReader
from trainyard.trainer.data.weights import Weights

Columns = dict[str, Tensor]

_DEPTH = 2
_ANNOUNCED = 4
_DECODING = 2
"""Shares whose rows threads decode, behind the one that is handed out."""
_PLACE = "\0place"
"""The column of where rows lie, block << 32 | row, while there are rows to decode."""
_UNUSED = 3
"""References to an array that a pool alone holds: its own, the loop's, and the call's that counts them."""


@dataclass(slots=True)
class LocalBatch:
    """A rank's rows of global batch `step`: `rows` of its `total`.

    A rank with no rows of a batch still takes part in its allreduce: it has `rows` 0, and columns
    that hold one row, to be weighted by zero.
    """

    step: int
    rows: int
    total: int
    columns: Columns


class Loader:
    """Reads `dataset` in `order`, as `rank` of `world`. Rows that differ in length become what `sequences` says."""

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
    ) -> None:
        decoding.check(dataset.columns, decode, augment)
        kinds = {column.name: column.kind for column in dataset.columns}
        if order.bucket_by is not None and kinds.get(order.bucket_by) != "list":
            lists = [name for name, kind in kinds.items() if kind == "list"]
            raise TrainyardError(
                f"bucket_by={order.bucket_by!r} is no list column among those that batches hold. "
                + (f"Write one of {', '.join(lists)}." if lists else "None of them is one: leave bucket_by out.")
            )
        for name, kind in kinds.items():
            if kind == "list" and jagged.mask(name) in kinds:
                raise TrainyardError(
                    f"column {jagged.mask(name)!r} has the name that the mask of {name!r} gets; rename it."
                )
        self.order = order
        self._sequences = sequences
        self._weights = weights
        self._drawn = lru_cache(OPEN_BLOCKS)(self._draw)
        self._varies = "list" in kinds.values()
        first = dataset.block(0) if decode else {}
        self._decoders = {
            name: Decoder(name, function, augment.get(name), order.seed, _jagged(first[name])[:1], self._told)
            for name, function in decode.items()
            if name in kinds
        }
        self._dataset = dataset
        self._rank, self._world = rank, world
        self._transform = transform
        self._pin = pin

    def column(self, name: str) -> Column:
        """A column as shares hold it: what bytes are decoded to."""
        if name in self._decoders:
            return self._decoders[name].column
        return next(column for column in self._dataset.columns if column.name == name)

    def epoch(self, epoch: int, step: int = 0) -> Iterator[LocalBatch]:
        """The shares of one epoch, from global batch `step` on."""
        shares = self._shares(epoch, step)
        if self._decoders:
            shares = self._decoding(shares, epoch)
        ahead = self._transform or self._pin or self._varies or self._decoders
        return background(map(self._finish, shares), _DEPTH) if ahead else shares

    def _shares(self, epoch: int, start: int) -> Iterator[LocalBatch]:
        windows = self.order.windows(epoch, self._rank, self._world, start)
        if self._dataset.remote:
            windows = self._announced(windows)
        kept = len(self._dataset.columns) * (_DEPTH + 2)
        fillable, gatherable = _Buffers(kept), _Buffers(kept)
        filled = self._filled(windows, epoch, fillable)
        for window, gather, rows in background(filled, _DEPTH) if self.order.shuffle else filled:
            dealt = rows if gather is None else _gathered(rows, gather, gatherable)
            names = tuple(dealt)
            parts = [_split(values, window.sizes) for values in dealt.values()]
            steps = range(window.first_step, window.first_step + len(window.sizes))
            for step, size, *tensors in zip(steps, window.sizes, *parts, strict=True):
                if step >= start:
                    columns = dict(zip(names, tensors, strict=True)) if size else self._one_row()
                    yield LocalBatch(step, size, self.order.size(step), columns)

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
        first = {name: rows[:1] for name, rows in self._dataset.block(0).items()}
        if self._decoders:
            first[_PLACE] = np.zeros(1, np.int64)
        return {name: r if isinstance(r, Jagged) else torch.from_numpy(np.array(r)) for name, r in first.items()}  # type: ignore[misc]

    def _filled(
        self, windows: Iterator[Window], epoch: int, buffers: _Buffers
    ) -> Iterator[tuple[Window, Integers | None, Block]]:
        """Windows with the order of their rows, and these, copied run by run."""
        for window in windows:
            runs = [(self._dataset.block(run.block), self._rows(run, epoch)) for run in window.runs]
            parts = {c.name: [block[c.name][rows] for block, rows in runs] for c in self._dataset.columns if runs}
            if self._decoders and runs:
                numbers = [np.arange(self._dataset.blocks[run.block]) for run in window.runs]
                places = zip(window.runs, numbers, runs, strict=True)
                parts[_PLACE] = [(run.block << 32) + number[rows] for run, number, (_, rows) in places]
            rows = {name: _joined(arrays, buffers) for name, arrays in parts.items()}
            yield window, window.gather(self._lengths(rows)) if window.gather else None, rows

    def _rows(self, run: Run, epoch: int) -> slice | Integers:
        """Which rows of its block a run has."""
        part = slice(run.begin, run.begin + run.rows)
        return self._drawn(run.block, epoch)[part] if self._weights else part

    def _draw(self, block: int, epoch: int) -> Integers:
        assert self._weights is not None
        return self.order.drawn_from(block, epoch, self._weights.of(block, self._dataset.block(block)))

    def _lengths(self, rows: Block) -> Integers | None:
        column = rows.get(self.order.bucket_by or "")
        return column.lengths if isinstance(column, Jagged) else None

    def _decoding(self, shares: Iterator[LocalBatch], epoch: int) -> Iterator[LocalBatch]:
        """Shares whose rows are being decoded, the next few as well."""
        ahead: deque[LocalBatch] = deque()
        for share in shares:
            columns: dict[str, Any] = dict(share.columns)
            places = columns.pop(_PLACE).numpy()
            for name, decoder in self._decoders.items():
                columns[name] = decoder.begin(columns[name], places, epoch)
            ahead.append(LocalBatch(share.step, share.rows, share.total, columns))
            if len(ahead) > _DECODING:
                yield ahead.popleft()
        yield from ahead

    def _told(self, place: int) -> str:
        return self._dataset.locate(place >> 32, place & 0xFFFFFFFF)

    def _finish(self, share: LocalBatch) -> LocalBatch:
        columns: Columns = {}
        for name, rows in share.columns.items():
            columns |= self._tensors(name, rows)
        columns = self._transform(columns) if self._transform else columns
        if self._pin:
            columns = {name: column.pin_memory() for name, column in columns.items()}
        return LocalBatch(share.step, share.rows, share.total, columns)

    def _tensors(self, name: str, rows: Tensor | Jagged | Pending) -> Columns:
        if isinstance(rows, Jagged):
            return jagged.tensors(name, rows, self._sequences)
        return {name: rows.result() if isinstance(rows, Pending) else rows}


def arranged(
    data: SplitReader | Mixture, batch: int, seed: int, shuffle: bool, bucket_by: str | None, weights: Weights | None
) -> Order:
    """The order in which `data` is read, in global batches of `batch` rows, or all of them if there are fewer."""
    window = window_rows(batch, data.row_bytes, BUCKET_POOL_BYTES if bucket_by else POOL_BYTES)
    blocks, groups = weights.blocks if weights else (), data.groups if isinstance(data, Mixture) else ()
    return Order(data.blocks, min(batch, data.rows), seed, window, shuffle, bucket_by, blocks, groups)


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


def _jagged(rows: Rows) -> Jagged:
    assert isinstance(rows, Jagged)
    return rows


def _joined(parts: list[Any], buffers: _Buffers) -> Rows:
    if isinstance(parts[0], Jagged):
        return jagged.joined(parts)
    rows = sum(len(part) for part in parts)
    return np.concatenate(parts, out=buffers.get((rows, *parts[0].shape[1:]), parts[0].dtype))


def _gathered(rows: Block, gather: Integers, buffers: _Buffers) -> Block:
    """The rows in the order of the batches: one gather for a window costs less than one for each batch."""

    def taken(values: Rows) -> Rows:
        if isinstance(values, Jagged):
            return values[gather]
        return values.take(gather, 0, out=buffers.get(values.shape, values.dtype), mode="clip")

    return {name: taken(values) for name, values in rows.items()}


def _split(rows: Rows, sizes: tuple[int, ...]) -> Sequence[Any]:
    """The rows of each share: tensors, or Jagged until it is finished."""
    if isinstance(rows, Jagged):
        ends = np.cumsum(sizes)
        return [rows[end - size : end] for size, end in zip(sizes, ends.tolist(), strict=True)]
    return torch.from_numpy(rows).split_with_sizes(sizes)
