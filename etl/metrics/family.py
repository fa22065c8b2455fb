"""The interface of a family of metrics, which compute their values from common sums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Sums = Mapping[str, Floats]
"""Sums by statistic; the first axis is resamples, the others are the statistic's shape."""

Link = Literal["softmax", "sigmoid", "exp", "none"]
"""The function that turns the network's output into probabilities; "exp" also into values of regression."""


@dataclass(frozen=True)
class OutputSpec:
    """What a model returns.

    Attributes:
        output: The shape of one row's output.
        label: The shape of one row's label.
        classes: The number of classes.
        link: The function that turns the output into probabilities, or into values of regression if it is "exp".
        ignored: The label whose rows metrics of several classes leave out, as the loss does.
    """

    output: tuple[int, ...]
    label: tuple[int, ...]
    classes: int | None
    link: Link
    ignored: int | None = None


@dataclass(frozen=True)
class ScoredRows:
    """The output of a model, or of a head of it, for some rows.

    Attributes:
        output: The output (rows, ...).
        truth: The labels (rows, ...).
        query: The query of each row (rows,), if there are queries.
        labeled: The numbers of the rows that have a label, which all metrics but the number of rows count; None if all
            have one.
    """

    output: NDArray[Any]
    truth: NDArray[Any]
    query: Integers | None = None
    labeled: Integers | None = None

    def select(self, rows: Integers) -> ScoredRows:
        """Return the rows with these numbers, as rows that have a label."""
        return ScoredRows(self.output[rows], self.truth[rows], None if self.query is None else self.query[rows])


@dataclass(frozen=True)
class Contribution:
    """What rows add to a statistic: for each of `rows` (k,), `values` (k, j) to its `cells` (k, j)."""

    statistic: str
    rows: Integers
    cells: Integers
    values: Floats


class MetricFamily(Protocol):
    """Metrics that are computed from the same sums."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each statistic."""

    @property
    def by_row(self) -> bool:
        """Whether contributions are known for each row or query; otherwise sums cannot be resampled."""

    def contribute(self, rows: ScoredRows) -> Iterator[Contribution]:
        """Yield what the rows add to each statistic."""

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        """Return the metrics by name, each (resamples, ...)."""

    def compute_losses(self, rows: ScoredRows) -> Floats | None:
        """Return the loss of each row (rows,), None if it is not defined for single rows."""

    def compute_curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        """Return the curves of the first resample, each a list of points."""


def number_rows(rows: ScoredRows) -> Integers:
    """Return the number of each row, from 0 on."""
    return np.arange(len(rows.truth))


def divide(part: Floats, total: Floats, empty: float = np.nan) -> Floats:
    """Return part / total, and `empty` where the total is 0."""
    out = np.full(np.broadcast_shapes(part.shape, total.shape), float(empty))
    return np.divide(part, total, out=out, where=total != 0)  # type: ignore[no-any-return]


def average(values: Floats, occurs: NDArray[np.bool_]) -> Floats:
    """Return the mean over classes or labels that occur; the value itself for a binary model."""
    if values.shape[1] == 1:
        return values[:, 0]
    return divide(np.where(occurs, values, 0).sum(axis=1), occurs.sum(axis=1))
