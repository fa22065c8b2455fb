"""Copy, gather and split the rows of columns, in groups of columns that are copied together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from trainyard.trainer.data.order import Integers
from trainyard.trainer.data.reading import jagged
from trainyard.trainer.data.reading.blocks import Names, Rows
from trainyard.trainer.data.reading.buffer_pool import BufferPool
from trainyard.trainer.data.reading.jagged import Jagged

Groups = dict[Names, Rows]
"""The rows of columns, by the names of the columns that are copied together: several are an array (columns, rows)."""


def as_jagged(rows: Rows) -> Jagged:
    """Return the rows of a column that is known to have variable-length or binary rows."""
    assert isinstance(rows, Jagged)
    return rows


def copy_rows(rows: Rows, are_bytes: bool) -> Rows | list[bytes]:
    """Return a copy of the rows of a column, as bytes objects if they are files to decode."""
    if isinstance(rows, Jagged):
        parts = [rows[number : number + 1].pack() for number in range(len(rows))]
        return [part.tobytes() for part in parts] if are_bytes else Jagged.from_rows(parts)
    return np.array(rows)


def _rows_axis(names: Names) -> int:
    return 1 if len(names) > 1 else 0


def concatenate(names: Names, parts: list[Any], pool: BufferPool) -> Rows:
    """Return the rows of a group one after the other, in a buffer of the pool."""
    if isinstance(parts[0], Jagged):
        return jagged.concatenate(parts)
    axis, shape = _rows_axis(names), list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return np.concatenate(parts, axis, out=pool.take(tuple(shape), parts[0].dtype))


def gather_rows(rows: Groups, gather: Integers, pool: BufferPool) -> Groups:
    """Return the rows in batch order: one gather for a window costs less than one for each batch."""

    def gather_group(names: Names, values: Rows) -> Rows:
        if isinstance(values, Jagged):
            return values[gather]
        axis, shape = _rows_axis(names), list(values.shape)
        shape[axis] = len(gather)
        return values.take(gather, axis, out=pool.take(tuple(shape), values.dtype), mode="clip")

    return {names: gather_group(names, values) for names, values in rows.items()}


def split(names: Names, rows: Rows, sizes: tuple[int, ...]) -> Sequence[Any]:
    """Return the rows of each local batch: tensors, or Jagged until the batch is finished."""
    if isinstance(rows, Jagged):
        ends = np.cumsum(sizes)
        return [rows[end - size : end] for size, end in zip(sizes, ends.tolist(), strict=True)]
    if len(names) > 1:
        return np.split(rows, np.cumsum(sizes)[:-1], axis=1)
    return torch.from_numpy(rows).split_with_sizes(sizes)


def ungroup(groups: Iterable[Names], batch: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows of each column of a batch."""
    for names, rows in zip(groups, batch, strict=True):
        if len(names) > 1:
            yield from map(torch.from_numpy, rows)
        else:
            yield rows
