"""Per-column statistics, gathered while writing and merged across tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trainyard.etl.datasource import tensors
from trainyard.etl.datasource.columns import Field, is_number
from trainyard.schemas.manifest import Statistics

MOST_ELEMENTS = 4096
MOST_VALUES = 1000
_BLOCK = 1 << 16

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Count, mean, sum of squared deviations from the mean, and extremes; one entry a position.

    `count` is the number of values that each entry sums up; the arrays have shape (entries,).
    """

    count: int
    mean: Floats
    m2: Floats
    min: Floats
    max: Floats

    def merge(self, other: Moments) -> Moments:
        """The moments of both samples together.

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
        """Whether no NaN and no infinity was among the values."""
        return bool(np.isfinite(self.min).all() and np.isfinite(self.max).all())


def nothing(entries: int) -> Moments:
    """The moments of no values."""
    zeros = np.zeros(entries)
    return Moments(0, zeros, zeros, zeros, zeros)


def moments(values: npt.NDArray[Any]) -> Moments:
    """Moments of values of shape (rows, entries, pooled); those along `pooled` share an entry.

    Summed in float64 whatever the type, in blocks that stay in the processor's cache.
    """
    rows, entries, pooled = values.shape
    total = nothing(entries)
    step = max(1, _BLOCK // max(1, entries * pooled))
    for start in range(0, rows, step):
        total = total.merge(_block(values[start : start + step]))
    return total


def _block(values: npt.NDArray[Any]) -> Moments:
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
    """What is known so far of one column over one split, in one task or in several."""

    moments: Moments | None = None
    rows: int = 0
    nulls: int = 0
    values: dict[Any, int] | None = field(default_factory=dict)

    def add(self, column: Field, array: pa.Array) -> Moments | None:
        """Take in the column's storage `array`; returns the moments of these rows when it has numbers."""
        self.rows += len(array)
        self.nulls += array.null_count
        self._count_values(column, array)
        if not is_number(column.element):
            return None
        found = moments(_positions(column, array))
        self.moments = found if self.moments is None else self.moments.merge(found)
        return found

    def merge(self, other: ColumnStatistics) -> ColumnStatistics:
        """The statistics of both together; neither is changed."""
        both = None if self.moments is None else self.moments
        if other.moments is not None:
            both = other.moments if both is None else both.merge(other.moments)
        counted = None
        if self.values is not None and other.values is not None:
            counted = _few(_sum(self.values, other.values))
        return ColumnStatistics(both, self.rows + other.rows, self.nulls + other.nulls, counted)

    def result(self, column: Field) -> Statistics:
        """As the manifest tells them. `count` is rows, or elements of a list column."""
        values = None
        if column.kind == "scalar" and self.values is not None and not pa.types.is_binary(column.element):
            values = {_text(value): self.values[value] for value in sorted(self.values)}
        total = self.moments or nothing(0)
        count = total.count if column.kind == "list" and self.moments else self.rows - self.nulls
        return _statistics(total, count, self.nulls, values)

    def _count_values(self, column: Field, array: pa.Array) -> None:
        if self.values is None or column.kind != "scalar" or pa.types.is_binary(column.element):
            self.values = None
            return
        counts = pc.value_counts(array.drop_null())
        if len(counts) > MOST_VALUES:
            self.values = None
            return
        found = dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True))
        self.values = _few(_sum(self.values, found))


def merged(one: Statistics, other: Statistics) -> Statistics:
    """The statistics of one column over the rows of both, up to rounding."""
    both = _moments(one).merge(_moments(other))
    values = None
    if one.values is not None and other.values is not None:
        values = _few(dict(sorted(_sum(one.values, other.values).items(), key=_by_number)))
    return _statistics(both, one.count + other.count, one.nulls + other.nulls, values)


def _statistics(total: Moments, count: int, nulls: int, values: dict[str, int] | None) -> Statistics:
    if not total.count:
        return Statistics(count=count, nulls=nulls, values=values)
    return Statistics(
        count=count, nulls=nulls, values=values,
        mean=tuple(total.mean.tolist()), std=tuple(np.sqrt(total.m2 / total.count).tolist()),
        min=tuple(total.min.tolist()), max=tuple(total.max.tolist()),
    )  # fmt: skip


def _moments(figures: Statistics) -> Moments:
    mean, std, low, high = (np.array(f) for f in (figures.mean, figures.std, figures.min, figures.max))
    return Moments(figures.count if figures.mean else 0, mean, std * std * figures.count, low, high)


def _by_number(item: tuple[str, int]) -> tuple[float, str]:
    """Numbers in their order, words in theirs."""
    try:
        return float(item[0]), ""
    except ValueError:
        return 0.0, item[0]


def _positions(column: Field, array: pa.Array) -> npt.NDArray[Any]:
    """The numbers of `array` in the shape that `moments` takes."""
    if column.kind == "scalar":
        return tensors.to_numpy(array).reshape(-1, 1, 1)
    flat = tensors.to_numpy(tensors.values(array))
    assert column.shape is not None
    elements = math.prod(column.shape)
    entries = elements if elements <= MOST_ELEMENTS else column.shape[0]
    return flat.reshape(-1, entries, elements // entries)


def _sum(one: dict[Any, int], other: dict[Any, int]) -> dict[Any, int]:
    return one | {value: one.get(value, 0) + count for value, count in other.items()}


def _few(values: dict[Any, int]) -> dict[Any, int] | None:
    return values if len(values) <= MOST_VALUES else None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
