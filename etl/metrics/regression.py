"""Metrics of regression; of several numbers a row each is the mean over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import Family, Floats, Scored, Sums, Tally, Task, every_row, ratio

_SUMS = 5
"""Rows, |error|, error^2, truth, truth^2."""


def family(asked: Sequence[str], task: Task) -> Family:
    """Raises TrainyardError when the network does not return what the label is."""
    if int(np.prod(task.output)) != int(np.prod(task.label)):
        raise TrainyardError(
            f"metric {asked[0]!r} is one of regression: output and label must have the same shape; a row of the "
            f"output has shape {list(task.output)}, one of the label {list(task.label)}."
        )
    return Regression(tuple(asked), int(np.prod(task.label)))


@dataclass(frozen=True)
class Regression:
    asked: tuple[str, ...]
    numbers: int
    by_row: bool = True

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"errors": (self.numbers, _SUMS)}

    def tallies(self, scored: Scored) -> Iterator[Tally]:
        truth, error = self._errors(scored)
        values = np.stack([np.ones_like(error), np.abs(error), error**2, truth, truth**2], axis=2)
        values = values.reshape(len(truth), -1)
        yield Tally("errors", every_row(scored), np.broadcast_to(np.arange(values.shape[1]), values.shape), values)

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        return {name: METRICS[name](sums["errors"]) for name in self.asked}

    def losses(self, scored: Scored) -> Floats:
        return np.abs(self._errors(scored)[1]).mean(axis=1)  # type: ignore[no-any-return]

    def curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        return {}

    def _errors(self, scored: Scored) -> tuple[Floats, Floats]:
        truth = scored.truth.reshape(-1, self.numbers).astype(np.float64)
        return truth, scored.output.reshape(-1, self.numbers).astype(np.float64) - truth


def _mae(sums: Floats) -> Floats:
    return ratio(sums[..., 1], sums[..., 0]).mean(axis=1)  # type: ignore[no-any-return]


def _mse(sums: Floats) -> Floats:
    return ratio(sums[..., 2], sums[..., 0]).mean(axis=1)  # type: ignore[no-any-return]


def _rmse(sums: Floats) -> Floats:
    return np.sqrt(ratio(sums[..., 2], sums[..., 0])).mean(axis=1)  # type: ignore[no-any-return]


def _r2(sums: Floats) -> Floats:
    spread = sums[..., 4] - ratio(sums[..., 3] ** 2, sums[..., 0])
    return (1 - ratio(sums[..., 2], spread)).mean(axis=1)  # type: ignore[no-any-return]


METRICS: dict[str, Callable[[Floats], Floats]] = {"mae": _mae, "mse": _mse, "rmse": _rmse, "r2": _r2}
