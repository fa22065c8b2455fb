"""The trainings of a mapped task: their curves over each other, and which is the best. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainyard.report import curves, palette, scores, settings
from trainyard.report.curves import Chart, Curve
from trainyard.report.formats import format_number
from trainyard.schemas.heads import name_metric, split_metric
from trainyard.schemas.results import ModelResult
from trainyard.schemas.specs.train import TrainOptions, TrainSpec

MAX_LINES = 2 * palette.RUN_COLORS
"""The trainings whose curves are drawn, the best ones; all are in the table."""


@dataclass(frozen=True)
class Member:
    """A training of a sweep.

    Attributes:
        task: The task.
        name: What distinguishes it from the others.
        best_epoch: The epoch whose model was kept.
        value: The value of the sweep's metric in this epoch; "" if there is none.
        style: The color and the dash of its line; None if it is not drawn.
    """

    task: str
    name: str
    best_epoch: int
    value: str
    style: Mapping[str, str] | None


@dataclass(frozen=True)
class Sweep:
    """The trainings of a mapped task.

    Attributes:
        task: The id of the task.
        metric: What the best epochs were chosen by.
        members: The trainings, the best first.
        charts: Their curves.
    """

    task: str
    metric: str
    members: tuple[Member, ...]
    charts: tuple[Chart, ...]


def build_sweeps(
    root: str,
    specs: Mapping[str, TrainSpec],
    results: Mapping[str, ModelResult],
    points: Mapping[str, Sequence[Mapping[str, float]]],
) -> list[Sweep]:
    """Return the sweeps of a run, each of two or more trainings that have succeeded.

    Args:
        root: The storage root, without which names of datasets and models are shown.
        specs: What the trainings of the run were asked to do, by task.
        results: What came of them, by task.
        points: The metrics of their epochs, as `curves.read_points` returns them, by task.
    """
    names = settings.name_members(root, specs)
    by_id: dict[str, list[str]] = {}
    for task in names:
        if task in results:
            by_id.setdefault(specs[task].task_key.task_id, []).append(task)
    return [
        _build_sweep(task_id, tasks, names, specs, results, points) for task_id, tasks in by_id.items() if tasks[1:]
    ]


def _build_sweep(
    task_id: str,
    tasks: Sequence[str],
    names: Mapping[str, str],
    specs: Mapping[str, TrainSpec],
    results: Mapping[str, ModelResult],
    points: Mapping[str, Sequence[Mapping[str, float]]],
) -> Sweep:
    metric, direction = find_monitor(specs[tasks[0]].options, results[tasks[0]])
    values = {task: curves.finite(results[task].metrics.get(metric)) for task in tasks}
    ranked = sorted(tasks, key=lambda task: (values[task] is None, -direction * (values[task] or 0.0)))
    styles = {task: palette.line_style(number) for number, task in enumerate(ranked[:MAX_LINES])}
    members = tuple(
        Member(
            task, names[task] or task, results[task].best_epoch,
            "" if (value := values[task]) is None else format_number(value), styles.get(task),
        )
        for task in ranked
    )  # fmt: skip
    drawn = [Curve(names[task] or task, styles[task], points[task]) for task in styles if points.get(task)]
    return Sweep(task_id, curves.humanize(metric), members, tuple(curves.overlay(drawn)))


def find_monitor(options: TrainOptions, result: ModelResult) -> tuple[str, int]:
    """Return the metric that the best epoch was chosen by, and 1 if more of it is better, -1 if less is."""
    head, name = split_metric(options.monitor)
    of_validation = name_metric(head, "validation_loss")
    metric = of_validation if name == "loss" and of_validation in result.metrics else options.monitor
    if options.monitor_mode:
        return metric, 1 if options.monitor_mode == "max" else -1
    return metric, scores.find_direction(metric) or -1
