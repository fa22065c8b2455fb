"""Compute statistics of columns while they are written, and merge those of several tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trainyard.errors import TrainyardError
from trainyard.etl.datasource import tensors
from trainyard.etl.datasource.columns import Field, is_number
from trainyard.schemas.datasets.manifest import Statistics

MAX_ELEMENTS = 4096
"""A tensor with more elements has one entry for each index of its first axis; one in all if these are more, too."""
MAX_VALUES = 1000
"""Values of a scalar are counted up to this many distinct ones."""
_BLOCK = 1 << 16

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Count, mean, sum of squared deviations from the mean, minimum and maximum of each entry of a column.

    `count` is the number of values in each entry; the arrays have shape (entries,).
    """

    count: int
    mean: Floats
    m2: Floats
    min: Floats
    max: Floats

    def merge(self, other: Moments) -> Moments:
        """Return the moments of both samples together.

        T. F. Chan, G. H. Golub, R. J. LeVeque: "Updating formulae and a pairwise algorithm for
        computing sample variances", Stanford CS report STAN-CS-79-773, 1979.
        """
        if not self.count or not other.count:
            return self if self.count else other
        count = self.count + other.count
        delta = other.mean - self.mean
        return Moments(
            count,
            self.mean + delta * (other.count / count),
            self.m2 + other.m2 + delta * delta * (self.count * other.count / count),
            np.minimum(self.min, other.min),
            np.maximum(self.max, other.max),
        )

    @property
    def finite(self) -> bool:
        """Whether no value is a NaN or an infinity."""
        return bool(np.isfinite(self.min).all() and np.isfinite(self.max).all())


def empty_moments(entries: int) -> Moments:
    """Return the moments of an empty sample."""
    zeros = np.zeros(entries)
    return Moments(0, zeros, zeros, zeros, zeros)


def compute_moments(values: npt.NDArray[Any]) -> Moments:
    """Return the moments of values of shape (rows, entries, pooled); those along `pooled` share an entry.

    Sums are float64 for every type, over blocks that fit the processor's cache.
    """
    rows, entries, pooled = values.shape
    total = empty_moments(entries)
    step = max(1, _BLOCK // max(1, entries * pooled))
    for start in range(0, rows, step):
        total = total.merge(_compute_block(values[start : start + step]))
    return total


def _compute_block(values: npt.NDArray[Any]) -> Moments:
    rows, _, pooled = values.shape
    if pooled == 1:
        values = values[:, :, 0]
    axes = (0, 2)[: values.ndim - 1]
    low, high = values.min(axis=axes), values.max(axis=axes)
    with np.errstate(invalid="ignore", over="ignore"):
        wide = values.astype(np.float64)
        if pooled == 1:
            mean = np.ones(rows) @ wide / rows
            wide -= mean
            m2 = np.einsum("ij,ij->j", wide, wide)
        else:
            mean = wide.sum(axis=axes) / (rows * pooled)
            wide -= mean[:, None]
            m2 = np.einsum("ijk,ijk->j", wide, wide)
    return Moments(rows * pooled, mean, m2, low.astype(np.float64), high.astype(np.float64))


@dataclass
class ColumnStatistics:
    """The statistics so far of one column of one split, in one task or in several.

    Attributes:
        moments: The moments of a column of numbers, None before the first rows and for other columns.
        rows: The number of rows, nulls included.
        nulls: The number of nulls.
        values: The count of each distinct value of a scalar, None if there are more than `MAX_VALUES`.
    """

    moments: Moments | None = None
    rows: int = 0
    nulls: int = 0
    values: dict[Any, int] | None = field(default_factory=dict)

    def add(self, column: Field, array: pa.Array) -> Moments | None:
        """Add rows, given as the column's storage; return their moments if the column has numbers."""
        self.rows += len(array)
        self.nulls += array.null_count
        self._count_values(column, array)
        if not is_number(column.element) or array.null_count == len(array):
            return None
        added = compute_moments(_arrange_entries(column, array))
        self.moments = added if self.moments is None else self.moments.merge(added)
        return added

    def merge(self, other: ColumnStatistics) -> ColumnStatistics:
        """Return the statistics of the rows of both; neither is changed."""
        moments = self.moments
        if other.moments is not None:
            moments = other.moments if moments is None else moments.merge(other.moments)
        counts = None
        if self.values is not None and other.values is not None:
            counts = _limit_values(_add_counts(self.values, other.values))
        return ColumnStatistics(moments, self.rows + other.rows, self.nulls + other.nulls, counts)

    def summarize(self, column: Field) -> Statistics:
        """Return the statistics for the manifest. `count` is rows, or the elements of a list column."""
        counts = None
        if column.kind == "scalar" and self.values is not None and not pa.types.is_binary(column.element):
            counts = {_to_text(value): self.values[value] for value in sorted(self.values)}
        moments = self.moments or empty_moments(0)
        count = moments.count if column.kind == "list" and self.moments else self.rows - self.nulls
        return _build_statistics(moments, count, self.nulls, counts)

    def _count_values(self, column: Field, array: pa.Array) -> None:
        if self.values is None or column.kind != "scalar" or pa.types.is_binary(column.element):
            self.values = None
            return
        counts = pc.value_counts(array.drop_null())
        if len(counts) > MAX_VALUES:
            self.values = None
            return
        try:
            values = counts.field(0).to_pylist()
        except (OverflowError, ValueError):
            raise TrainyardError(
                f"column {column.name!r} has a date or a time outside of the years 1 to 9999, which Python cannot "
                "represent; correct it, or cast the column to a number in prepare."
            ) from None
        added = dict(zip(values, counts.field(1).to_pylist(), strict=True))
        self.values = _limit_values(_add_counts(self.values, added))


def merge_statistics(one: Statistics, other: Statistics) -> Statistics:
    """Return the statistics of one column over the rows of both, up to rounding."""
    moments = _restore_moments(one).merge(_restore_moments(other))
    values = None
    if one.values is not None and other.values is not None:
        values = _limit_values(dict(sorted(_add_counts(one.values, other.values).items(), key=_numeric_order)))
    return _build_statistics(moments, one.count + other.count, one.nulls + other.nulls, values)


def _build_statistics(moments: Moments, count: int, nulls: int, values: dict[str, int] | None) -> Statistics:
    if not moments.count:
        return Statistics(count=count, nulls=nulls, values=values)
    return Statistics(
        count=count, nulls=nulls, values=values,
        mean=tuple(moments.mean.tolist()), std=tuple(np.sqrt(moments.m2 / moments.count).tolist()),
        min=tuple(moments.min.tolist()), max=tuple(moments.max.tolist()),
    )  # fmt: skip


def _restore_moments(statistics: Statistics) -> Moments:
    arrays = (statistics.mean, statistics.std, statistics.min, statistics.max)
    mean, std, low, high = (np.array(values) for values in arrays)
    return Moments(statistics.count if statistics.mean else 0, mean, std * std * statistics.count, low, high)


def _numeric_order(item: tuple[str, int]) -> tuple[float, str]:
    """Return a sort key under which numbers are in numeric, other texts in alphabetical order."""
    try:
        return float(item[0]), ""
    except ValueError:
        return 0.0, item[0]


def _arrange_entries(column: Field, array: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of a column in the shape (rows, entries, pooled) that `compute_moments` takes."""
    if column.kind == "scalar":
        return tensors.to_numpy(array.drop_null() if array.null_count else array).reshape(-1, 1, 1)
    flat = tensors.to_numpy(tensors.flatten(array))
    assert column.shape is not None
    elements = math.prod(column.shape)
    entries = next((count for count in (elements, *column.shape[:1]) if count <= MAX_ELEMENTS), 1)
    return flat.reshape(-1, entries, elements // entries)


def _add_counts(one: dict[Any, int], other: dict[Any, int]) -> dict[Any, int]:
    return one | {value: one.get(value, 0) + count for value, count in other.items()}


def _limit_values(values: dict[Any, int]) -> dict[Any, int] | None:
    return values if len(values) <= MAX_VALUES else None


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
