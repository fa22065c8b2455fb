"""Evaluations as the report shows them. Pure functions of the document."""

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
class Shown:
    """An evaluation, ready to be laid out: `lines` of the metrics, of the model and of those beside it."""

    evaluation: Evaluation
    numbers: tuple[str, ...]
    lines: tuple[tuple[str, tuple[str, ...]], ...]
    differences: tuple[tuple[str, tuple[str, ...]], ...]
    slices: tuple[tuple[Slice, tuple[str, ...]], ...]
    matrices: tuple[list[list[int]], ...]
    curves: tuple[Curve, ...]
    columns: tuple[str, ...]


def shown(found: Evaluation) -> Shown:
    numbers = tuple(n for n, value in found.model.metrics.items() if not isinstance(value, list))
    models: list[Scores] = [found.model, *found.baselines]
    return Shown(
        evaluation=found,
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
            for other in found.baselines
        ),
        slices=tuple((slice, _cells(numbers, slice.metrics, slice.intervals)) for slice in found.model.slices),
        matrices=_matrices(found.model.metrics.get("confusion_matrix")),
        curves=tuple(Curve(name, _path(points)) for name, points in found.curves.items()),
        columns=tuple(found.examples[0].row) if found.examples else (),
    )


def number(value: Any) -> str:
    """A number in four digits; what is none as it is."""
    return f"{value:.4g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _cells(names: Sequence[str], metrics: dict[str, Any], intervals: dict[str, Interval]) -> tuple[str, ...]:
    return tuple(_cell(metrics.get(name), intervals.get(name)) for name in names)


def _cell(value: float | None, ends: Interval | None) -> str:
    if value is None:
        return "–"
    return f"{number(value)} ({number(ends[0])} to {number(ends[1])})" if ends else number(value)


def _matrices(found: Any) -> tuple[list[list[int]], ...]:
    """Of classes there is one, of several labels one each."""
    if not found:
        return ()
    return tuple(found) if isinstance(found[0][0], list) else (found,)


def _path(points: list[list[float]]) -> str:
    return " ".join(f"{SIZE * x:.1f},{SIZE * (1 - y):.1f}" for x, y in points)
