"""What a family of metrics is, and what it is told of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Sums = Mapping[str, Floats]
"""Sums by statistic; the first axis is resamples, the others are the statistic's own shape."""

Link = Literal["softmax", "sigmoid", "exp", "none"]
"""How probabilities follow from the network's output."""


@dataclass(frozen=True)
class Task:
    """What a model does: the shapes of one row's output and label, and the recipe's number of classes."""

    output: tuple[int, ...]
    label: tuple[int, ...]
    classes: int | None
    link: Link


@dataclass(frozen=True)
class Scored:
    """Rows that a model was applied to: its output (rows, ...), the truth (rows, ...), and the query of each row."""

    output: NDArray[Any]
    truth: NDArray[Any]
    query: Integers | None = None

    def of(self, rows: Integers) -> Scored:
        """Some of them."""
        return Scored(self.output[rows], self.truth[rows], None if self.query is None else self.query[rows])


@dataclass(frozen=True)
class Tally:
    """What some rows add to a statistic: `values` (k, j) to its `cells` (k, j), on behalf of `rows` (k,)."""

    statistic: str
    rows: Integers
    cells: Integers
    values: Floats


class Family(Protocol):
    """Metrics that follow from the same sums."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each statistic."""

    @property
    def by_row(self) -> bool:
        """Whether it is known what each row, or query, adds: else its sums can be neither sliced nor resampled."""

    def tallies(self, scored: Scored) -> Iterator[Tally]:
        """What the rows add."""

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        """The metrics by name, each (resamples, ...)."""

    def losses(self, scored: Scored) -> Floats | None:
        """How bad each row is, None when that is not known of single rows."""

    def curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        """Lines to draw, each a list of points, of the first resample."""


def every_row(scored: Scored) -> Integers:
    return np.arange(len(scored.truth))


def ratio(part: Floats, whole: Floats, empty: float = np.nan) -> Floats:
    """part / whole, `empty` where the whole is nothing."""
    out = np.full(np.broadcast_shapes(part.shape, whole.shape), float(empty))
    return np.divide(part, whole, out=out, where=whole != 0)  # type: ignore[no-any-return]
