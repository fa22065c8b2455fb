"""Sums of a part of a dataset, by model, statistic, slice and bucket; merged over parts by whoever has some of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import Family, Floats, Integers, Scored, Tally

BUCKETS = 50
SCHEMA = pa.schema(
    {
        "model": pa.int32(),
        "statistic": pa.string(),
        "column": pa.string(),
        "value": pa.string(),
        "cells": pa.list_(pa.int64()),
        "sums": pa.list_(pa.float64()),
    }
)
"""Only cells that are not empty are kept: a statistic's cell, plus its size times the bucket."""

MOST_SLICES = 1000
_PENDING = 1 << 20


class Slice(NamedTuple):
    """Rows with the same value of a column; all rows are the slice of no column."""

    column: str = ""
    value: str = ""


class Key(NamedTuple):
    model: int
    statistic: str
    slice: Slice


Sparse = tuple[Integers, Floats]


class SumAccumulator:
    """Adds up what batches of rows add to the statistics of several models' families."""

    def __init__(self, models: Sequence[Sequence[Family]]) -> None:
        self._models = models
        self._slices: dict[Slice, int] = {}
        self._found: dict[tuple[int, str], list[Sparse]] = defaultdict(list)

    def add(self, model: int, scored: Scored, groupings: Sequence[Integers], buckets: Integers) -> None:
        """Rows that a model was applied to; of each grouping the slice (rows,) that each row is in, and its bucket."""
        for family in self._models[model]:
            if family.by_row:
                for tally in family.tallies(scored):
                    for slices in groupings:
                        self._add(model, family, tally, slices, buckets)
            else:
                for slices in groupings:
                    for each in np.unique(slices):
                        rows = np.flatnonzero(slices == each)
                        for tally in family.tallies(scored.of(rows)):
                            self._add(model, family, tally, slices[rows], buckets[rows])

    def number(self, slice: Slice) -> int:
        """What stands for a slice in groupings. Raises TrainyardError when there are too many."""
        check_slices(len(self._slices))
        return self._slices.setdefault(slice, len(self._slices))

    def table(self) -> pa.RecordBatch:
        """All of it, of the SCHEMA."""
        slices, found = list(self._slices), {}
        for (model, statistic), parts in self._found.items():
            keys, sums = _compact(parts)
            width = self._width(model, statistic)
            numbers = keys // width
            starts = np.flatnonzero(np.diff(numbers, prepend=-1))
            for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
                key = Key(model, statistic, slices[numbers[start]])
                found[key] = (keys[start:end] % width, sums[start:end])
        return to_table(found)

    def _add(self, model: int, family: Family, tally: Tally, slices: Integers, buckets: Integers) -> None:
        size = int(np.prod(family.shapes[tally.statistic]))
        groups = slices[tally.rows] * BUCKETS + buckets[tally.rows]
        keys = groups[:, None] * size + tally.cells
        parts = self._found[model, tally.statistic]
        parts.append((keys.reshape(-1), tally.values.reshape(-1)))
        if sum(len(part) for part, _ in parts[1:]) > _PENDING:
            parts[:] = [_compact(parts)]

    def _width(self, model: int, statistic: str) -> int:
        shape = next(family.shapes[statistic] for family in self._models[model] if statistic in family.shapes)
        return int(np.prod(shape)) * BUCKETS


def check_slices(count: int) -> None:
    """Raises TrainyardError when so many slices are more than anybody looks at."""
    if count > MOST_SLICES:
        raise TrainyardError(f"slices= make more than {MOST_SLICES:,} slices; name columns of fewer values.")


def to_table(found: Mapping[Key, Sparse]) -> pa.RecordBatch:
    lines = [(key.model, key.statistic, *key.slice, *sparse) for key, sparse in found.items()]
    columns = [pa.array([line[number] for line in lines], field.type) for number, field in enumerate(SCHEMA)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def merged(tables: Iterable[pa.RecordBatch]) -> dict[Key, Sparse]:
    """The sums of several parts together."""
    parts: dict[Key, list[Sparse]] = defaultdict(list)
    for table in tables:
        cells, sums = table.column("cells"), table.column("sums")
        names = zip(*(table.column(name).to_pylist() for name in SCHEMA.names[:4]), strict=True)
        for row, (model, statistic, column, value) in enumerate(names):
            sparse = (cells[row].values.to_numpy(), sums[row].values.to_numpy())
            parts[Key(model, statistic, Slice(column, value))].append(sparse)
    return {key: _compact(several) for key, several in parts.items()}


def dense(sparse: Sparse | None, shape: tuple[int, ...]) -> Floats:
    """(buckets, *shape)"""
    full = np.zeros(BUCKETS * int(np.prod(shape)))
    if sparse:
        full[sparse[0]] = sparse[1]
    return full.reshape(BUCKETS, *shape)


def _compact(parts: Sequence[Sparse]) -> Sparse:
    cells: Integers
    cells, of = np.unique(np.concatenate([cells for cells, _ in parts]), return_inverse=True)
    return cells, np.bincount(of, np.concatenate([sums for _, sums in parts]), len(cells))  # type: ignore[return-value]
