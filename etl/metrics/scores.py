"""From sums to what is told of a model: metrics with intervals, of all rows and of slices, and differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.etl.metrics.family import Family, Floats
from trainyard.etl.metrics.intervals import drawn, interval, whole
from trainyard.etl.metrics.sums import Key, Slice, Sparse, dense
from trainyard.schemas import evaluation as told
from trainyard.schemas.evaluation import Difference, Interval, Metrics

ALL = Slice()

Found = Mapping[Key, Sparse]


class ModelMetrics:
    """One model's sums: model `number` of `found`, whose metrics are those of `families`."""

    def __init__(self, found: Found, number: int, families: Sequence[Family], confidence: float) -> None:
        self._found, self._number, self._families = found, number, families
        self._confidence = confidence
        self.metrics, self._drawn = self._of(ALL)
        self.rows = int(self.metrics.pop("rows"))

    @property
    def intervals(self) -> dict[str, Interval]:
        return self._intervals(self._drawn)

    @property
    def slices(self) -> tuple[told.Slice, ...]:
        """Of each value of a column, in their order."""
        every = sorted({key.slice for key in self._found} - {ALL})
        return tuple(self._slice(slice) for slice in every)

    @property
    def curves(self) -> dict[str, list[list[float]]]:
        found: dict[str, list[list[float]]] = {}
        for family in self._families:
            found |= family.curves({name: sums.sum(axis=0, keepdims=True) for name, sums in self._sums(family, ALL)})
        return found

    def above(self, other: ModelMetrics) -> dict[str, Difference]:
        """By how much each metric that is a number is above the other's, over the same draws of rows."""
        return {
            name: Difference(
                value=_difference(self.metrics[name], other.metrics[name]),
                interval=interval(draws - other._drawn[name], self._confidence),
            )
            for name, draws in self._drawn.items()
            if name in other.metrics
        }

    def _slice(self, slice: Slice) -> told.Slice:
        metrics, draws = self._of(slice)
        rows = int(metrics.pop("rows"))
        return told.Slice(**slice._asdict(), rows=rows, metrics=metrics, intervals=self._intervals(draws))

    def _of(self, slice: Slice) -> tuple[Metrics, dict[str, Floats]]:
        metrics: dict[str, Any] = {}
        draws: dict[str, Floats] = {}
        for family in self._families:
            sums = dict(self._sums(family, slice))
            metrics |= whole(family, sums)
            draws |= drawn(family, sums)
        return metrics, draws

    def _sums(self, family: Family, slice: Slice) -> list[tuple[str, Floats]]:
        return [
            (name, dense(self._found.get(Key(self._number, name, slice)), shape))
            for name, shape in family.shapes.items()
        ]

    def _intervals(self, draws: Mapping[str, Floats]) -> dict[str, Interval]:
        found = {name: interval(values, self._confidence) for name, values in draws.items() if name != "rows"}
        return {name: ends for name, ends in found.items() if ends}


def _difference(mine: float | None, others: float | None) -> float | None:
    return None if mine is None or others is None else mine - others
