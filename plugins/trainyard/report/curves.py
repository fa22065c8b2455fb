"""Learning curves: the metrics of each epoch, or step, as charts. Pure functions of a run's events."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.report.formats import format_number
from trainyard.schemas.heads import split_metric
from trainyard.schemas.runs.events import AXES

LOSSES = ("loss", "validation_loss")
SPEEDS = ("rows_per_second", "bytes_per_step")
"""Metrics of the speed, which come last, and only if they change."""


@dataclass(frozen=True)
class Series:
    """A line of a chart: a value for each place of the x-axis, None for a gap; `color` is a name of the palette."""

    name: str
    color: str
    values: tuple[float | None, ...]
    dash: str = "solid"


@dataclass(frozen=True)
class Chart:
    """Lines over the same places, for example epochs; `best` is the place of the best epoch, if one is known."""

    title: str
    places: tuple[str, ...]
    series: tuple[Series, ...]
    axis: str = "epoch"
    best: int | None = None

    @property
    def options(self) -> dict[str, Any]:
        """What the script of the charts draws."""
        return {
            "places": self.places,
            "axis": self.axis,
            "best": self.best,
            "series": [{"name": s.name, "color": s.color, "dash": s.dash, "values": s.values} for s in self.series],
        }

    @property
    def description(self) -> str:
        """The chart as a sentence for each line, for readers who do not see it."""
        return ". ".join((f"{self.title} by {self.axis}", *(self._describe(series) for series in self.series)))

    def _describe(self, series: Series) -> str:
        known = [(place, value) for place, value in zip(self.places, series.values, strict=True) if value is not None]
        if not known:
            return f"{series.name}: no values"
        values = [value for _, value in known]
        place, last = known[-1]
        low, high = format_number(min(values)), format_number(max(values))
        return f"{series.name}: between {low} and {high}; last {format_number(last)} ({self.axis} {place})"


@dataclass(frozen=True)
class Curve:
    """What one of several trainings adds to each chart: its name, its color and dash, and the metrics of its epochs."""

    name: str
    style: Mapping[str, str]
    points: Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class PointTable:
    """The metrics of epochs or steps as text: a row for each of them, whose first cell is its number."""

    axis: str
    columns: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]


def read_points(events: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return the metrics of each epoch, in order, with its number as `epoch`; of steps, where there are no epochs.

    Of an epoch that was run again, those of the last time. A value that is not finite, which events store as null, is
    NaN.
    """
    for axis in AXES:
        by_place = {e["args"][axis]: e["args"] for e in events if e["ph"] == "C" and e["name"] == axis}
        if by_place:
            return [
                {name: math.nan if value is None else value for name, value in by_place[place].items()}
                for place in sorted(by_place)
            ]
    return []


def build_charts(points: Sequence[Mapping[str, float]], best_epoch: int | None = None) -> list[Chart]:
    """Return one chart for the losses, one for each metric, and those of the speed last.

    Args:
        points: The metrics of each epoch or step, as `read_points` returns them.
        best_epoch: The number of the epoch whose model was kept.

    Returns:
        The charts; none without points.
    """
    axis = find_axis(points)
    places = tuple(f"{point[axis]:.0f}" for point in points)
    best = places.index(str(best_epoch)) if str(best_epoch) in places else None
    return [
        Chart(title, places, tuple(_build_series(name, points) for name in names), axis, best)
        for title, names in group_metrics(points)
    ]


def overlay(trainings: Sequence[Curve]) -> list[Chart]:
    """Return a chart for each metric of several trainings, with a line for each of them that has it."""
    points = [point for training in trainings for point in training.points]
    axis = find_axis(points)
    places = sorted({point[axis] for point in points})
    charts = []
    for name in (name for _, names in group_metrics(points) for name in names):
        series = []
        for training in trainings:
            by_place = {point[axis]: finite(point.get(name)) for point in training.points}
            if any(value is not None for value in by_place.values()):
                values = tuple(by_place.get(place) for place in places)
                series.append(Series(training.name, training.style["color"], values, training.style["dash"]))
        charts.append(Chart(humanize(name).capitalize(), tuple(f"{p:.0f}" for p in places), tuple(series), axis))
    return charts


def build_table(points: Sequence[Mapping[str, float]]) -> PointTable:
    """Return the metrics of each epoch or step as text."""
    axis, names = find_axis(points), [name for _, group in group_metrics(points) for name in group]
    rows = ((int(point[axis]), tuple(_cell(point.get(name)) for name in names)) for point in points)
    return PointTable(axis, tuple(map(humanize, names)), tuple(rows))


def find_axis(points: Sequence[Mapping[str, float]]) -> str:
    """Return what the places of points count: "epoch" or "step"."""
    return next((axis for axis in AXES if points and axis in points[0]), AXES[0])


def group_metrics(points: Sequence[Mapping[str, float]]) -> list[tuple[str, list[str]]]:
    """Return (title, names) of the charts that show the metrics of some epochs or steps."""
    names = list(dict.fromkeys(name for point in points for name in point if name not in AXES))
    losses: dict[str, list[str]] = {}
    for name in sorted((name for name in names if split_metric(name)[1] in LOSSES), key=_is_of_validation):
        losses.setdefault(split_metric(name)[0], []).append(name)
    others = [name for name in names if split_metric(name)[1] not in (*LOSSES, *SPEEDS)]
    speeds = [name for name in SPEEDS if name in names and len({point.get(name) for point in points}) > 1]
    groups = [(f"Loss of {head}" if head else "Loss", of_head) for head, of_head in losses.items()]
    return [*groups, *((humanize(name).capitalize(), [name]) for name in (*others, *speeds))]


def _is_of_validation(name: str) -> bool:
    return split_metric(name)[1] == "validation_loss"


def humanize(name: str) -> str:
    """Return the name of a metric with spaces."""
    return name.replace("_", " ")


def finite(value: float | None) -> float | None:
    """Return a value that JSON and charts have: None for NaN and infinity."""
    return value if value is not None and math.isfinite(value) else None


def _build_series(name: str, points: Sequence[Mapping[str, float]]) -> Series:
    metric = split_metric(name)[1]
    color = "train" if metric == "loss" or name in SPEEDS else "validation"
    label = {"loss": "training", "validation_loss": "validation"}.get(metric, humanize(name))
    return Series(label, color, tuple(finite(point.get(name)) for point in points))


def _cell(value: float | None) -> str:
    return "" if value is None else format_number(value)
