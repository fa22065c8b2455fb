"""Compute a model's metrics from sums: over all rows, over slices, and as differences from another model.

A model with heads has metrics of each head apart, which `HEAD/` begins the names of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from trainyard.etl.metrics.classification import Trials, count_trials
from trainyard.etl.metrics.dummy import compute_dummy_metrics, list_warnings
from trainyard.etl.metrics.family import Floats, MetricFamily
from trainyard.etl.metrics.intervals import (
    compute_interval,
    compute_point_estimates,
    compute_wilson_interval,
    resample_metrics,
)
from trainyard.etl.metrics.sums import ALL_ROWS, Key, Slice, SparseSums, to_dense
from trainyard.schemas import evaluation as schema
from trainyard.schemas.evaluation import Difference, Interval, Metrics
from trainyard.schemas.heads import ONLY, name_metric, split_metric

T = TypeVar("T")


class ModelMetrics:
    """The metrics of one model.

    Args:
        sums: The sums of all models.
        number: The number of this model.
        families: The families of its metrics, of which one counts rows.
        confidence: The confidence of intervals, between 0 and 1.
        head: The name of the head whose metrics these are; empty for a model without heads.
    """

    def __init__(
        self,
        sums: Mapping[Key, SparseSums],
        number: int,
        families: Sequence[MetricFamily],
        confidence: float,
        head: str = ONLY,
    ) -> None:
        self._sums, self._number, self._families = sums, number, families
        self._confidence, self._head = confidence, head
        self.metrics, self._resampled, self._trials = self._compute(ALL_ROWS)
        self.rows = int(self.metrics.pop("rows"))

    @property
    def intervals(self) -> dict[str, Interval]:
        """The interval of each metric over all rows that has one."""
        return self._compute_intervals(self._resampled, self._trials)

    @property
    def slices(self) -> tuple[schema.Slice, ...]:
        """The metrics of each slice, sorted by column and value."""
        slices = sorted({key.slice for key in self._sums} - {ALL_ROWS})
        return tuple(self._compute_slice(slice) for slice in slices)

    @property
    def curves(self) -> dict[str, list[list[float]]]:
        """The curves over all rows by name, each a list of points."""
        curves: dict[str, list[list[float]]] = {}
        for family in self._families:
            curves |= family.compute_curves(self._get_totals(family))
        return self._name(curves)

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence if the model is worse than one that ignores its inputs."""
        dummy: dict[str, float] = {}
        for family in self._families:
            dummy |= compute_dummy_metrics(family, self._get_totals(family))
        of_head = f"Head {self._head!r}: " if self._head else ""
        metrics = {split_metric(name)[1]: value for name, value in self.metrics.items()}
        return tuple(f"{of_head}{text}" for text in list_warnings(metrics, dummy))

    def compute_differences(self, other: ModelMetrics) -> dict[str, Difference]:
        """Return this model's metrics minus the other's, with intervals over the same resamples."""
        return {
            name: Difference(
                value=_subtract(self.metrics[name], other.metrics[name]),
                interval=compute_interval(values - other._resampled[name], self._confidence),
            )
            for name, values in self._resampled.items()
            if name in other.metrics
        }

    def _compute_slice(self, slice: Slice) -> schema.Slice:
        metrics, resampled, trials = self._compute(slice)
        rows = int(metrics.pop("rows"))
        intervals = self._compute_intervals(resampled, trials)
        return schema.Slice(**slice._asdict(), rows=rows, metrics=metrics, intervals=intervals)

    def _compute(self, slice: Slice) -> tuple[Metrics, dict[str, Floats], dict[str, Trials]]:
        """Return the metrics of a slice, their resampled values, and the trials of those that are proportions."""
        metrics: dict[str, Any] = {}
        resampled: dict[str, Floats] = {}
        trials: dict[str, Trials] = {}
        for family in self._families:
            sums = self._get_sums(family, slice)
            metrics |= compute_point_estimates(family, sums)
            resampled |= resample_metrics(family, sums)
            if "outcomes" in sums:
                trials |= count_trials(family, {"outcomes": sums["outcomes"].sum(axis=0, keepdims=True)})
        rows, _ = metrics.pop("rows"), resampled.pop("rows")
        return {"rows": rows, **self._name(metrics)}, self._name(resampled), self._name(trials)

    def _name(self, of_metrics: Mapping[str, T]) -> dict[str, T]:
        """Return values by metric, or curve, with the name of the head before that of each."""
        return {name_metric(self._head, name): value for name, value in of_metrics.items()}

    def _get_sums(self, family: MetricFamily, slice: Slice) -> dict[str, Floats]:
        return {
            name: to_dense(self._sums.get(Key(self._number, name, slice)), shape)
            for name, shape in family.shapes.items()
        }

    def _get_totals(self, family: MetricFamily) -> dict[str, Floats]:
        """Return the sums over all buckets, as one resample."""
        return {name: part.sum(axis=0, keepdims=True) for name, part in self._get_sums(family, ALL_ROWS).items()}

    def _compute_intervals(self, resampled: Mapping[str, Floats], trials: Mapping[str, Trials]) -> dict[str, Interval]:
        intervals: dict[str, Interval] = {}
        for name, values in resampled.items():
            bounds = compute_interval(values, self._confidence)
            if bounds and bounds[0] < bounds[1]:
                intervals[name] = bounds
            elif bounds and name in trials:
                intervals[name] = compute_wilson_interval(trials[name], self._confidence)
        return intervals


def _subtract(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other
