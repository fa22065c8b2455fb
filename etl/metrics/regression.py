"""Metrics of regression. With several numbers in a row, each metric is the mean over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import (
    Contribution,
    Floats,
    Link,
    MetricFamily,
    OutputSpec,
    ScoredRows,
    Sums,
    divide,
    number_rows,
)

_SUMS = 5
"""Rows, |error|, error^2, label - center, (label - center)^2."""
_ROUNDING_ERROR = 1e-11
"""Labels are considered equal if their spread is at most this fraction of the sum of their squares."""
CENTER_ROWS = 1000
"""Labels from whose median the center is taken."""


def build_family(metrics: Sequence[str], spec: OutputSpec) -> MetricFamily:
    """Return the family that computes `metrics`.

    Raises:
        TrainyardError: Output and label differ in size.
    """
    if int(np.prod(spec.output)) != int(np.prod(spec.label)):
        raise TrainyardError(
            f"metric {metrics[0]!r} is for regression: output and label must have the same shape; a row of the "
            f"output has shape {list(spec.output)}, one of the label {list(spec.label)}."
        )
    return Regression(tuple(metrics), int(np.prod(spec.label)), link=spec.link)


def needs_center(families: Sequence[MetricFamily]) -> bool:
    """Return whether one of the metrics is computed from the spread of the labels."""
    return any(isinstance(family, Regression) and "r2" in family.metrics for family in families)


def center_labels(families: Sequence[MetricFamily], labels: NDArray[Any]) -> tuple[MetricFamily, ...]:
    """Return the families with the median of some `labels` (rows, ...) as the center of all.

    All tasks need the same center, and any value among the labels is near enough. The median is not an outlier.
    """
    center = np.median(labels.reshape(len(labels), -1).astype(np.float64), axis=0) if len(labels) else np.zeros(1)
    values = tuple(float(value) if np.isfinite(value) else 0.0 for value in center)
    return tuple(replace(family, center=values) if isinstance(family, Regression) else family for family in families)


@dataclass(frozen=True)
class Regression:
    """The family of regression metrics, for `numbers` numbers in each row.

    With the link "exp", the output is the logarithm of the value that is compared with the label. Other links are those
    of probabilities, and do not apply.

    The spread of labels is the difference of two sums. Around 0 these are of the size of the mean, squared, and their
    difference has no correct digit where the mean is 1e8 times the standard deviation; so they are around `center`.
    """

    metrics: tuple[str, ...]
    numbers: int
    by_row: bool = True
    center: tuple[float, ...] = ()
    link: Link = "none"

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The sums of each number."""
        return {"errors": (self.numbers, _SUMS)}

    def contribute(self, rows: ScoredRows) -> Iterator[Contribution]:
        """Yield the errors and labels of each row, and their squares."""
        truth, error = self._compute_errors(rows)
        centered = truth - np.array(self.center or [0.0])
        values = np.stack([np.ones_like(error), np.abs(error), error**2, centered, centered**2], axis=2)
        values = values.reshape(len(truth), -1)
        cells = np.broadcast_to(np.arange(values.shape[1]), values.shape)
        yield Contribution("errors", number_rows(rows), cells, values)

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        """Return the metrics by name, each (resamples,)."""
        return {name: METRICS[name](sums["errors"]) for name in self.metrics}

    def compute_losses(self, rows: ScoredRows) -> Floats:
        """Return the mean absolute error of each row."""
        return np.abs(self._compute_errors(rows)[1]).mean(axis=1)  # type: ignore[no-any-return]

    def compute_curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        """Return no curves."""
        return {}

    def _compute_errors(self, rows: ScoredRows) -> tuple[Floats, Floats]:
        """Return labels and errors, each (rows, numbers)."""
        truth, output = (x.reshape(-1, self.numbers).astype(np.float64) for x in (rows.truth, rows.output))
        return truth, (np.exp(output) if self.link == "exp" else output) - truth


def _mae(sums: Floats) -> Floats:
    return divide(sums[..., 1], sums[..., 0]).mean(axis=1)  # type: ignore[no-any-return]


def _mse(sums: Floats) -> Floats:
    return divide(sums[..., 2], sums[..., 0]).mean(axis=1)  # type: ignore[no-any-return]


def _rmse(sums: Floats) -> Floats:
    return np.sqrt(divide(sums[..., 2], sums[..., 0])).mean(axis=1)  # type: ignore[no-any-return]


def compute_spread(sums: Floats) -> Floats:
    """Return the sum of (label - mean)^2, 0 where it is not larger than its rounding error."""
    squares = sums[..., 4]
    spread = squares - divide(sums[..., 3] ** 2, sums[..., 0])
    return np.where(spread > _ROUNDING_ERROR * squares, spread, 0)


def _r2(sums: Floats) -> Floats:
    return (1 - divide(sums[..., 2], compute_spread(sums))).mean(axis=1)  # type: ignore[no-any-return]


METRICS: dict[str, Callable[[Floats], Floats]] = {"mae": _mae, "mse": _mse, "rmse": _rmse, "r2": _r2}
