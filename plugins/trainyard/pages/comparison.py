"""Compare runs of a pipeline: the options that differ, metrics with intervals, and learning curves over each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainyard.errors import noted
from trainyard.files import storage, uris
from trainyard.pages import runs
from trainyard.pages.runs import Row, Run
from trainyard.report import curves, palette
from trainyard.report.curves import Chart, Curve
from trainyard.report.evaluations import format_metric
from trainyard.report.formats import format_duration
from trainyard.report.overview import measure_seconds
from trainyard.report.scores import list_metrics
from trainyard.schemas.runs import events
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.job import JobSpec

MAX_RUNS = palette.RUN_COLORS
MISSING = "–"
_OF_THE_ATTEMPT = ("document", "version", "code", "code.archive", "code.is_changed")
"""Fields of specs that are no options."""


@dataclass(frozen=True)
class Line:
    """A line of a table: its task, its name, and a cell for each run."""

    task: str
    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """Runs side by side, in the order in which they were chosen."""

    rows: Sequence[Row]
    metrics: Sequence[Line]
    options: Sequence[Line]
    charts: Sequence[Chart]


def compare(chosen: Sequence[Run], unreadable: dict[str, str]) -> Comparison:
    """Read some runs, and return what is the same kind of thing in each; note what is `unreadable`."""
    rows = [runs.build_row(run) for run in chosen]
    records = [[stage.record for stage in row.stages] for row in rows]
    epochs = [
        {record.task_key.task: _read_epochs(run, record, unreadable) for record in of_run if record.job == "train"}
        for run, of_run in zip(chosen, records, strict=True)
    ]
    options = [_read_options(run, unreadable) for run in chosen]
    return Comparison(rows, collect_metrics(records), find_differences(options), overlay(epochs))


def collect_metrics(records: Sequence[Sequence[RunRecord]]) -> list[Line]:
    """Return the metrics of each run with their intervals, those of evaluations first, and the durations of stages."""
    cells: dict[tuple[bool, str, str], dict[int, str]] = {}
    for number, scored in ((n, one) for n, of_run in enumerate(records) for r in of_run for one in list_metrics(r)):
        for name, value in scored.metrics.items():
            if value is not None:
                key = (not scored.is_evaluation, scored.title, name)
                cells.setdefault(key, {})[number] = format_metric(value, scored.intervals.get(name))
    metrics = [
        _line(task, curves.humanize(name), by_run, len(records))
        for (_, task, name), by_run in sorted(cells.items(), key=lambda item: item[0][0])
    ]
    durations: dict[str, dict[int, str]] = {"": {}}
    for number, of_run in enumerate(records):
        if of_run:
            durations[""][number] = format_duration(measure_seconds(of_run))
        for record in of_run:
            durations.setdefault(record.task_key.task, {})[number] = format_duration(record.seconds)
    return metrics + [_line(task, "duration", by_run, len(records)) for task, by_run in durations.items()]


def find_differences(options: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[Line]:
    """Return the options, flat, that are not the same in all runs: for each run, task -> option -> value."""
    names = dict.fromkeys((task, name) for of_run in options for task, of_task in of_run.items() for name in of_task)
    lines = []
    for task, name in names:
        cells = tuple(_as_text(of_run.get(task, {}).get(name)) for of_run in options)
        if len(set(cells)) > 1:
            lines.append(Line(task, name, cells))
    return lines


def overlay(epochs: Sequence[Mapping[str, Sequence[Mapping[str, float]]]]) -> list[Chart]:
    """Return one chart for each metric of each training, with a line for each run that has it.

    Args:
        epochs: For each run, task -> the metrics of its epochs.

    Returns:
        The charts; the lines have the colors of the runs.
    """
    tasks = dict.fromkeys(task for of_run in epochs for task in of_run)
    charts = []
    for task in tasks:
        of_runs = [
            Curve(f"Run {number + 1}", palette.line_style(number), of_run[task])
            for number, of_run in enumerate(epochs)
            if of_run.get(task)
        ]
        prefix = f"{task}: " if len(tasks) > 1 else ""
        charts += [replace(chart, title=prefix + chart.title) for chart in curves.overlay(of_runs)]
    return charts


def flatten(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested options as one level, with names such as `strategy.name`."""
    flat: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _read_options(run: Run, unreadable: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return task -> its options, flat, as its newest spec has them."""
    root = uris.join(run.directory, "specs")
    names = [name for name in storage.list_names(root) if name.endswith(".json") and not name.startswith(".")]
    options = {}
    for name in names:
        with noted(unreadable, f"{run.run_id}, {name}"):
            spec = json.loads(storage.read(uris.join(root, name), JobSpec.MAX_BYTES))
            options[name.removesuffix(".json")] = {
                field: value
                for field, value in flatten(spec).items()
                if field not in _OF_THE_ATTEMPT and not field.startswith("task_key.")
            }
    return options


def _read_epochs(run: Run, record: RunRecord, unreadable: dict[str, str]) -> list[dict[str, float]]:
    task = record.task_key.task
    with noted(unreadable, f"{run.run_id}, events of {task}"):
        return curves.read_points(events.read_counters(run.directory, task, "worker 0", ["epoch"]))
    return []


def _line(task: str, name: str, by_run: Mapping[int, str], runs: int) -> Line:
    return Line(task, name, tuple(by_run.get(number, MISSING) for number in range(runs)))


def _as_text(value: Any) -> str:
    if value is None:
        return MISSING
    return value if isinstance(value, str) else json.dumps(value)
