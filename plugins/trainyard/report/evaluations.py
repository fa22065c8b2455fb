"""Lay out evaluations for the report. Pure functions of the document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.report import palette
from trainyard.report.formats import format_number
from trainyard.schemas.evaluation import Evaluation, Interval, Scores, Slice
from trainyard.schemas.heads import split_metric
from trainyard.schemas.version_suffix import add_version


@dataclass(frozen=True)
class Plot:
    """Curves in the unit square that belong together, for example the ROC of each class."""

    title: str
    curves: dict[str, list[list[float]]]

    @property
    def options(self) -> dict[str, Any]:
        """What the script of the charts draws; after the last color, they repeat with dashed lines."""
        return {
            "series": [
                {"name": name, **palette.line_style(number), "points": points}
                for number, (name, points) in enumerate(self.curves.items())
            ]
        }


@dataclass(frozen=True)
class Matrix:
    """A confusion matrix, and the names of its classes: their numbers, if they have none."""

    title: str
    classes: tuple[str, ...]
    counts: list[list[int]]


@dataclass(frozen=True)
class EvaluationView:
    """An evaluation as tables of text: a line of metrics for the model and for each baseline."""

    evaluation: Evaluation
    numbers: tuple[str, ...]
    lines: tuple[tuple[str, tuple[str, ...]], ...]
    differences: tuple[tuple[str, tuple[str, ...]], ...]
    slices: tuple[tuple[Slice, tuple[str, ...]], ...]
    matrices: tuple[Matrix, ...]
    plots: tuple[Plot, ...]
    columns: tuple[str, ...]


def build_view(evaluation: Evaluation) -> EvaluationView:
    """Return the tables and curves of an evaluation."""
    numbers = tuple(n for n, value in evaluation.model.metrics.items() if not isinstance(value, list))
    models: list[Scores] = [evaluation.model, *evaluation.baselines]
    uris = [model.uri for model in models]
    names = {
        id(model): add_version(model.uri, model.weights_sha256) if uris.count(model.uri) > 1 else model.uri
        for model in models
    }
    return EvaluationView(
        evaluation=evaluation,
        numbers=numbers,
        lines=tuple((names[id(model)], _cells(numbers, model.metrics, model.intervals)) for model in models),
        differences=tuple(
            (
                names[id(other)],
                _cells(
                    numbers,
                    {name: difference.value for name, difference in other.differences.items()},
                    {name: d.interval for name, d in other.differences.items() if d.interval},
                ),
            )
            for other in evaluation.baselines
        ),
        slices=tuple((slice, _cells(numbers, slice.metrics, slice.intervals)) for slice in evaluation.model.slices),
        matrices=tuple(_list_matrices(evaluation)),
        plots=group_curves(evaluation.curves),
        columns=tuple(evaluation.examples[0].row) if evaluation.examples else (),
    )


def group_curves(curves: Mapping[str, list[list[float]]]) -> tuple[Plot, ...]:
    """Return the curves as plots: those named `KIND of CLASS` share the plot of their kind."""
    plots: dict[str, dict[str, list[list[float]]]] = {}
    for name, points in curves.items():
        kind, _, label = name.partition(" of ")
        plots.setdefault(kind, {})[label or name] = points
    return tuple(Plot(f"{kind[:1].upper()}{kind[1:]}", of_kind) for kind, of_kind in plots.items())


def format_metric(value: float | None, ends: Interval | None) -> str:
    """Return a metric with its interval, a dash where it has no value."""
    if value is None:
        return "–"
    if ends is None:
        return format_number(value)
    return f"{format_number(value)} ({format_number(ends[0])} to {format_number(ends[1])})"


def _cells(names: Sequence[str], metrics: Mapping[str, Any], intervals: Mapping[str, Interval]) -> tuple[str, ...]:
    return tuple(format_metric(metrics.get(name), intervals.get(name)) for name in names)


def _list_matrices(evaluation: Evaluation) -> Iterator[Matrix]:
    """Yield the confusion matrix of each head: one for classes, or one for each of several labels."""
    for name, value in evaluation.model.metrics.items():
        head, metric = split_metric(name)
        if metric != "confusion_matrix" or not value:
            continue
        several = isinstance(value[0][0], list)
        of_head = f" of {head}" if head else ""
        names = evaluation.head_classes.get(head, ()) if head else evaluation.classes
        for number, counts in enumerate(value if several else [value]):
            title = f"Confusion matrix{of_head}" + (f" of label {number}" if several and len(value) > 1 else "")
            yield Matrix(title, names or tuple(map(str, range(len(counts)))), counts)
