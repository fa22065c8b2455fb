"""Lay out evaluations for the report. Pure functions of the document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.schemas.evaluation import Evaluation, Interval, Scores, Slice

SIZE = 180.0


@dataclass(frozen=True)
class Curve:
    """A line in a square of SIZE, from (0, 0) at the lower left to (1, 1)."""

    name: str
    points: str


@dataclass(frozen=True)
class EvaluationView:
    """An evaluation as tables of text: a line of metrics for the model and for each baseline."""

    evaluation: Evaluation
    numbers: tuple[str, ...]
    lines: tuple[tuple[str, tuple[str, ...]], ...]
    differences: tuple[tuple[str, tuple[str, ...]], ...]
    slices: tuple[tuple[Slice, tuple[str, ...]], ...]
    matrices: tuple[list[list[int]], ...]
    curves: tuple[Curve, ...]
    columns: tuple[str, ...]


def build_view(evaluation: Evaluation) -> EvaluationView:
    """Return the tables and curves of an evaluation."""
    numbers = tuple(n for n, value in evaluation.model.metrics.items() if not isinstance(value, list))
    models: list[Scores] = [evaluation.model, *evaluation.baselines]
    return EvaluationView(
        evaluation=evaluation,
        numbers=numbers,
        lines=tuple((model.uri, _cells(numbers, model.metrics, model.intervals)) for model in models),
        differences=tuple(
            (
                other.uri,
                _cells(
                    numbers,
                    {name: difference.value for name, difference in other.differences.items()},
                    {name: d.interval for name, d in other.differences.items() if d.interval},
                ),
            )
            for other in evaluation.baselines
        ),
        slices=tuple((slice, _cells(numbers, slice.metrics, slice.intervals)) for slice in evaluation.model.slices),
        matrices=_matrices(evaluation.model.metrics.get("confusion_matrix")),
        curves=tuple(Curve(name, _path(points)) for name, points in evaluation.curves.items()),
        columns=tuple(evaluation.examples[0].row) if evaluation.examples else (),
    )


def format_number(value: Any) -> str:
    """Format a number with four digits; return any other value as text."""
    return f"{value:.4g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _cells(names: Sequence[str], metrics: dict[str, Any], intervals: dict[str, Interval]) -> tuple[str, ...]:
    return tuple(_cell(metrics.get(name), intervals.get(name)) for name in names)


def _cell(value: float | None, ends: Interval | None) -> str:
    if value is None:
        return "–"
    return (
        f"{format_number(value)} ({format_number(ends[0])} to {format_number(ends[1])})"
        if ends
        else format_number(value)
    )


def _matrices(value: Any) -> tuple[list[list[int]], ...]:
    """Return one matrix for classes, or one for each of several labels."""
    if not value:
        return ()
    return tuple(value) if isinstance(value[0][0], list) else (value,)


def _path(points: list[list[float]]) -> str:
    return " ".join(f"{SIZE * x:.1f},{SIZE * (1 - y):.1f}" for x, y in points)
