"""Learning curves: the metrics of each epoch as charts. Pure functions of a run's events."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.report.formats import format_number
from trainyard.schemas.heads import split_metric

LOSSES = ("loss", "validation_loss")
SPEEDS = ("rows_per_second", "bytes_per_step")
"""Metrics of the speed, which come last, and only if they change."""


@dataclass(frozen=True)
class Series:
    """A line of a chart: a value for each place of the x-axis, None for a gap; `color` is a name of the palette."""

    name: str
    color: str
    values: tuple[float | None, ...]


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
            "series": [{"name": s.name, "color": s.color, "values": s.values} for s in self.series],
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
class EpochTable:
    """The metrics of epochs as text: a row for each epoch, whose first cell is its number."""

    columns: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]


def read_epochs(events: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """Return the metrics of each epoch, in order; of an epoch that was run again, those of the last time.

    A value that is not finite, which events store as null, is NaN.
    """
    by_epoch = {e["args"]["epoch"]: e["args"] for e in events if e["ph"] == "C" and e["name"] == "epoch"}
    return [
        {name: math.nan if value is None else value for name, value in by_epoch[epoch].items()}
        for epoch in sorted(by_epoch)
    ]


def build_charts(epochs: Sequence[Mapping[str, float]], best_epoch: int | None = None) -> list[Chart]:
    """Return one chart for the losses, one for each metric, and those of the speed last.

    Args:
        epochs: The metrics of each epoch, as `read_epochs` returns them.
        best_epoch: The number of the epoch whose model was kept.

    Returns:
        The charts; none without epochs.
    """
    places = tuple(f"{epoch['epoch']:.0f}" for epoch in epochs)
    best = places.index(str(best_epoch)) if str(best_epoch) in places else None
    return [
        Chart(title, places, tuple(_build_series(name, epochs) for name in names), best=best)
        for title, names in group_metrics(epochs)
    ]


def build_table(epochs: Sequence[Mapping[str, float]]) -> EpochTable:
    """Return the metrics of each epoch as text."""
    names = [name for _, group in group_metrics(epochs) for name in group]
    rows = ((int(epoch["epoch"]), tuple(_cell(epoch.get(name)) for name in names)) for epoch in epochs)
    return EpochTable(tuple(map(humanize, names)), tuple(rows))


def group_metrics(epochs: Sequence[Mapping[str, float]]) -> list[tuple[str, list[str]]]:
    """Return (title, names) of the charts that show the metrics of some epochs."""
    names = list(dict.fromkeys(name for epoch in epochs for name in epoch if name != "epoch"))
    losses: dict[str, list[str]] = {}
    for name in sorted((name for name in names if split_metric(name)[1] in LOSSES), key=_is_of_validation):
        losses.setdefault(split_metric(name)[0], []).append(name)
    others = [name for name in names if split_metric(name)[1] not in (*LOSSES, *SPEEDS)]
    speeds = [name for name in SPEEDS if name in names and len({epoch.get(name) for epoch in epochs}) > 1]
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


def _build_series(name: str, epochs: Sequence[Mapping[str, float]]) -> Series:
    metric = split_metric(name)[1]
    color = "train" if metric == "loss" or name in SPEEDS else "validation"
    label = {"loss": "training", "validation_loss": "validation"}.get(metric, humanize(name))
    return Series(label, color, tuple(finite(epoch.get(name)) for epoch in epochs))


def _cell(value: float | None) -> str:
    return "" if value is None else format_number(value)
