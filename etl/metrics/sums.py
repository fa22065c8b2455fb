"""Accumulate sums over rows by model, statistic, slice and bucket, and merge those of several tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import Contribution, Floats, Integers, MetricFamily, ScoredRows
from trainyard.etl.metrics.rows import RowCount

BUCKETS = 50
SCHEMA = pa.schema(
    {
        "model": pa.int32(),
        "statistic": pa.string(),
        "column": pa.string(),
        "value": pa.string(),
        "range": pa.int32(),
        "cells": pa.list_(pa.int64()),
        "sums": pa.list_(pa.float64()),
    }
)
"""Sums as a table with a row for each key and range of cells. Only cells that are not empty are stored; a cell's number
is its number in the statistic, plus the statistic's size times the bucket."""

RANGE_KEYS = ("model", "statistic", "column", "value", "range")
"""Rows of several tables that agree in these columns form one group; groups can be merged independently."""
RANGE_CELLS = 1 << 16

MAX_SLICES = 1000
_MAX_PENDING = 1 << 20
"""Cells that a task adds to its sums at once."""
_PART_CELLS = 32
"""The cells that take as much memory as the two arrays of one part do beside their own cells."""


class Slice(NamedTuple):
    """The rows with one value of a column; without a column, all rows."""

    column: str = ""
    value: str = ""


ALL_ROWS = Slice()


class Key(NamedTuple):
    """The key of sums: the number of the model, the name of the statistic, and the slice."""

    model: int
    statistic: str
    slice: Slice


SparseSums = tuple[Integers, Floats]
"""The numbers of cells, ascending, and the sum of each."""


class SumAccumulator:
    """Accumulate what batches of rows contribute to the statistics of several models.

    Args:
        models: The families of metrics of each model.
    """

    def __init__(self, models: Sequence[Sequence[MetricFamily]]) -> None:
        self._models = models
        self._slices: dict[Slice, int] = {}
        self._parts: dict[tuple[int, str], list[SparseSums]] = defaultdict(list)
        self._pending: dict[tuple[int, str], int] = defaultdict(int)

    def add(self, model: int, rows: ScoredRows, groupings: Sequence[Integers], buckets: Integers) -> None:
        """Add rows that a model was applied to.

        Args:
            model: The number of the model.
            rows: The rows.
            groupings: For each way to slice the rows, the number of the slice of each row (rows,).
            buckets: The bucket of each row (rows,).
        """
        for family in self._models[model]:
            if rows.labeled is None or isinstance(family, RowCount):
                self._add_family(model, family, rows, groupings, buckets)
            elif len(rows.labeled):
                of_labeled = [slices[rows.labeled] for slices in groupings]
                self._add_family(model, family, rows.select(rows.labeled), of_labeled, buckets[rows.labeled])

    def _add_family(
        self, model: int, family: MetricFamily, rows: ScoredRows, groupings: Sequence[Integers], buckets: Integers
    ) -> None:
        """Add rows to the statistics of one family; see `add`."""
        if family.by_row:
            for contribution in family.contribute(rows):
                for slices in groupings:
                    self._add(model, family, contribution, slices, buckets)
        else:
            for slices in groupings:
                for number in np.unique(slices):
                    members = np.flatnonzero(slices == number)
                    for contribution in family.contribute(rows.select(members)):
                        self._add(model, family, contribution, slices[members], buckets[members])

    def number_slice(self, slice: Slice) -> int:
        """Return the number of a slice for `groupings`.

        Raises:
            TrainyardError: There are more than `MAX_SLICES`.
        """
        check_slice_count(len(self._slices))
        return self._slices.setdefault(slice, len(self._slices))

    def to_table(self) -> pa.RecordBatch:
        """Return all sums as a table of the `SCHEMA`."""
        slices, sums = list(self._slices), {}
        for (model, statistic), parts in self._parts.items():
            keys, values = _compact(parts)
            width = self._get_width(model, statistic)
            numbers = keys // width
            starts = np.flatnonzero(np.diff(numbers, prepend=-1))
            for start, end in pairwise([*starts, len(keys)]):
                key = Key(model, statistic, slices[numbers[start]])
                sums[key] = (keys[start:end] % width, values[start:end])
        return to_table(sums)

    def _add(
        self, model: int, family: MetricFamily, contribution: Contribution, slices: Integers, buckets: Integers
    ) -> None:
        size = int(np.prod(family.shapes[contribution.statistic]))
        groups = slices[contribution.rows] * BUCKETS + buckets[contribution.rows]
        keys = groups[:, None] * size + contribution.cells
        parts = self._parts[model, contribution.statistic]
        parts.append((keys.reshape(-1), contribution.values.reshape(-1)))
        self._pending[model, contribution.statistic] += keys.size + _PART_CELLS
        if self._pending[model, contribution.statistic] > _MAX_PENDING:
            parts[:] = [_compact(parts)]
            self._pending[model, contribution.statistic] = 0

    def _get_width(self, model: int, statistic: str) -> int:
        """Return the number of cells of a statistic over all buckets."""
        shape = next(family.shapes[statistic] for family in self._models[model] if statistic in family.shapes)
        return int(np.prod(shape)) * BUCKETS


def check_slice_count(count: int) -> None:
    """Check the number of slices.

    Raises:
        TrainyardError: There are more than `MAX_SLICES`.
    """
    if count > MAX_SLICES:
        raise TrainyardError(f"slices= results in more than {MAX_SLICES:,} slices; use columns with fewer values.")


def to_table(sums: Mapping[Key, SparseSums]) -> pa.RecordBatch:
    """Return sums as a table of the `SCHEMA`."""
    rows = [
        (key.model, key.statistic, *key.slice, *part) for key, sparse in sums.items() for part in _split_ranges(sparse)
    ]
    columns = [pa.array([row[number] for row in rows], field.type) for number, field in enumerate(SCHEMA)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def merge_sums(tables: Iterable[pa.RecordBatch]) -> dict[Key, SparseSums]:
    """Return the sums of several tables of the `SCHEMA` together.

    Memory is that of the result and of one table: each row of a table is added to its range of cells at once. Joining
    the ranges of a key takes the memory of that key once more.
    """
    merged: dict[Key, dict[int, SparseSums]] = defaultdict(dict)
    for table in tables:
        cells, sums = table.column("cells"), table.column("sums")
        names = zip(*(table.column(name).to_pylist() for name in RANGE_KEYS), strict=True)
        for row, (model, statistic, column, value, number) in enumerate(names):
            ranges = merged[Key(model, statistic, Slice(column, value))]
            part = cells[row].values.to_numpy(), sums[row].values.to_numpy()
            ranges[number] = _add(ranges[number], part) if number in ranges else (part[0].copy(), part[1].copy())
    return {key: _join(merged.pop(key)) for key in list(merged)}


def to_dense(sums: SparseSums | None, shape: tuple[int, ...]) -> Floats:
    """Return the sums of a statistic of this shape as (buckets, *shape)."""
    full = np.zeros(BUCKETS * int(np.prod(shape)))
    if sums:
        full[sums[0]] = sums[1]
    return full.reshape(BUCKETS, *shape)


def _split_ranges(sparse: SparseSums) -> Iterator[tuple[int, Integers, Floats]]:
    """Yield the number of each range of cells that is not empty, with its cells and sums."""
    cells, sums = sparse
    ranges = cells // RANGE_CELLS
    starts = np.flatnonzero(np.diff(ranges, prepend=-1))
    for start, end in pairwise([*starts, len(cells)]):
        yield int(ranges[start]), cells[start:end], sums[start:end]


def _add(total: SparseSums, part: SparseSums) -> SparseSums:
    """Return the sums of both; those of cells that `total` has are added in place."""
    cells, sums = total
    positions = np.searchsorted(cells, part[0])
    known = cells.take(positions, mode="clip") == part[0]
    sums[positions[known]] += part[1][known]
    if known.all():
        return total
    new = ~known
    return np.insert(cells, positions[new], part[0][new]), np.insert(sums, positions[new], part[1][new])


def _join(ranges: Mapping[int, SparseSums]) -> SparseSums:
    """Return the sums of all ranges of one key."""
    parts = [ranges[number] for number in sorted(ranges)]
    return np.concatenate([cells for cells, _ in parts]), np.concatenate([sums for _, sums in parts])


def _compact(parts: Sequence[SparseSums]) -> SparseSums:
    """Return sums in which each cell occurs once, ascending."""
    cells: Integers
    cells, inverse = np.unique(np.concatenate([cells for cells, _ in parts]), return_inverse=True)
    return cells, np.bincount(inverse, np.concatenate([sums for _, sums in parts]), len(cells))  # type: ignore[return-value]
