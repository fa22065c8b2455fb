"""Render the report of a run: one standalone HTML file from the events, records and manifests of its stages."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from trainyard.errors import TrainyardError, noted, summarize
from trainyard.files import storage, uris
from trainyard.files.storage import StoredFile
from trainyard.links import report_uri
from trainyard.report import assets, curves, evaluations, formats, overview, palette, settings, stages, sweeps, timeline
from trainyard.report.curves import Chart, PointTable
from trainyard.schemas.datasets import manifest
from trainyard.schemas.datasets.manifest import DatasetManifest
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.results import DatasetResult, ModelResult, Result
from trainyard.schemas.runs import events, outcomes
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec
from trainyard.usage import resource_usage
from trainyard.usage.resource_usage import ResourceUsage

ATTEMPTS = 3
"""How often a report is rendered while other tasks of the run end. Each of them renders it, too."""
FEW_TASKS = 32
"""Until so many tasks have ended, each end of a mapped one renders the report."""
FILTERS = {
    "duration": formats.format_duration,
    "number": formats.format_number,
    "size": formats.format_bytes,
    "run_name": formats.describe_run,
    "hours": formats.format_hours,
}
"""The filters that the templates of this folder use."""

_LOG = logging.getLogger(__name__)
_GUARD = threading.Lock()
_CLAIMED: set[str] = set()
"""The directories whose reports threads of this process refresh now."""
_TEMPLATES = Environment(
    loader=PackageLoader("trainyard.report", "templates"),
    autoescape=select_autoescape(["j2"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= FILTERS
_TEMPLATES.globals |= {"activity_of": palette.activity_of, "assets": assets}


def render_after(task_key: TaskKey) -> None:
    """Render the report after the end of a task, unless it is a mapped one of many.

    After `FEW_TASKS` every second mapped task renders the report, after twice as many every fourth, and so on, by their
    indices: the cost of a sweep grows with its tasks, not with their square. The next task that is not mapped, or
    `refresh`, adds what is missing.
    """
    ended = len({file.path for file in _list_outcomes(task_key.directory)})
    every = 1 << (ended // FEW_TASKS).bit_length()
    if ended and (task_key.map_index < 0 or task_key.map_index % every == 0):
        render(task_key.directory)


def refresh(directory: str) -> None:
    """Render the report if a task of the run has ended since it was written. Errors are logged, not raised.

    While another thread of this process does so, return at once: a report that many open is rendered once.
    """
    with _claim(directory) as is_free:
        try:
            if is_free and _is_outdated(directory):
                render(directory)
        except Exception as error:  # each file system raises exceptions of its own
            _LOG.warning("The report of %s cannot be written: %s", directory, summarize(error))


@contextmanager
def _claim(directory: str) -> Iterator[bool]:
    """Yield whether no other thread of this process has claimed the directory, which this one does then."""
    with _GUARD:
        is_free = directory not in _CLAIMED
        _CLAIMED.add(directory)
    try:
        yield is_free
    finally:
        if is_free:
            _CLAIMED.remove(directory)


def _is_outdated(directory: str) -> bool:
    """Return whether a task has ended since the report was written, or its resource usage was stored since."""
    files = [*_list_outcomes(directory), *storage.find_files(uris.join(directory, "usage"))]
    ends = [math.inf if file.modified is None else file.modified for file in files]
    return bool(ends) and max(ends) >= (storage.modified(report_uri(directory)) or 0.0)


def render(directory: str) -> str:
    """Write `report.html`, and `trace.json` for Perfetto, to the run's directory, and return the report's URI.

    Where a task ends meanwhile, which may have written its report before, the report is rendered again.
    """
    for _ in range(ATTEMPTS):
        outcomes_before = _list_outcomes(directory)
        uri = _render(directory)
        if _list_outcomes(directory) == outcomes_before:
            break
    return uri


def _list_outcomes(directory: str) -> list[StoredFile]:
    """Return the files of a run that say how its tasks ended, with their times."""
    return [file for part in ("records", "failures") for file in storage.find_files(uris.join(directory, part))]


def _render(directory: str) -> str:
    unreadable: dict[str, str] = {}
    trace = events.read(directory, unreadable)
    storage.replace(uris.join(directory, "trace.json"), json.dumps({"traceEvents": trace}).encode())
    uri = report_uri(directory)
    records = outcomes.read_run(directory, unreadable)
    specs = read_specs(directory, records, unreadable)
    page = render_page(records, trace, _read_usages(directory, unreadable), unreadable, specs)
    storage.replace(uri, page.encode())
    return uri


def render_page(
    records: Sequence[RunRecord], trace: Sequence[dict[str, Any]], usages: Sequence[ResourceUsage] = (),
    unreadable: dict[str, str] | None = None, specs: Mapping[str, TrainSpec] | None = None,
) -> str:  # fmt: skip
    """Return the report as HTML.

    Args:
        records: The records of one run.
        trace: Its events.
        usages: The resource usage of its applications.
        unreadable: What cannot be read, and why, to which evaluations are added; None raises their errors.
        specs: What its trainings were asked to do, by task.
    """
    root = records[0].task_key.root if records else ""
    results = [record.result for record in records]
    models = {record.task_key.task: record.result for record in records if isinstance(record.result, ModelResult)}
    by_task = timeline.group_by_task(trace)
    points = {task: curves.read_points(its_events) for task, its_events in by_task.items()}
    return _TEMPLATES.get_template("report.html.j2").render(
        task_key=records[0].task_key if records else None,
        overview=overview.build_overview(records, usages),
        stages=stages.build_stages(records),
        timeline=timeline.build_timeline(trace),
        trainings=_build_trainings(root, models, by_task, points, specs or {}),
        evaluations=_read_evaluations(root, [one for one in results if one], unreadable),
        datasets=[_read_dataset(root, one, unreadable) for one in results if isinstance(one, DatasetResult)],
        members=settings.name_members(root, specs or {}),
        sweeps=sweeps.build_sweeps(root, specs or {}, models, points),
        unreadable=unreadable or {},
    )


@dataclass(frozen=True)
class Training:
    """What the report shows of the workers of one task."""

    task: str
    settings: list[tuple[str, str]]
    charts: list[Chart]
    table: PointTable
    best_epoch: int | None
    bottleneck: str
    phases: list[tuple[str, float, list[tuple[str, float, float]]]]
    clocks: list[tuple[str, float, float]]


def _build_trainings(
    root: str,
    results: Mapping[str, ModelResult],
    events_by_task: Mapping[str, Sequence[dict[str, Any]]],
    points_by_task: Mapping[str, Sequence[Mapping[str, float]]],
    specs: Mapping[str, TrainSpec],
) -> list[Training]:
    """Return the tasks whose workers have curves or phases, in the order of their start."""
    trainings = []
    for task, its_events in events_by_task.items():
        result, points = results.get(task), points_by_task[task]
        best_epoch = result.best_epoch if result else None
        trainings.append(
            Training(
                task=task, settings=settings.describe_training(root, specs[task], result) if task in specs else [],
                charts=curves.build_charts(points, best_epoch), table=curves.build_table(points),
                best_epoch=best_epoch, bottleneck=result.bottleneck if result else "",
                phases=timeline.sum_phases(its_events), clocks=timeline.find_clock_offsets(its_events),
            )
        )  # fmt: skip
    return [training for training in trainings if training.charts or training.phases]


def read_specs(directory: str, records: Sequence[RunRecord], unreadable: dict[str, str]) -> dict[str, TrainSpec]:
    """Return what each training of a run was asked to do, by task; note those that are `unreadable`."""
    specs: dict[str, TrainSpec] = {}
    folder = uris.join(directory, "specs")
    files = {file.path: file for file in storage.find_files(folder)}
    for task in [record.task_key.task for record in records if record.job == "train"]:
        if file := files.get(f"{task}.json"):
            with noted(unreadable, f"what {task} was asked to do"):
                specs[task] = TrainSpec.load_unchanged(uris.join(folder, file.path), file.bytes, file.modified)
    return specs


def _read_evaluations(
    root: str, results: Sequence[Result], unreadable: dict[str, str] | None
) -> list[evaluations.EvaluationView]:
    """Return the evaluations in the storage that still exist; note those that are `unreadable`."""
    views: list[evaluations.EvaluationView] = []
    for uri in [one.evaluation for result in results for one in result.evaluations_by_name.values()]:
        with noted(unreadable, uri):
            _check_reachable(root, uri)
            if storage.exists(uri):
                views.append(evaluations.build_view(Evaluation.load(uri)))
    return views


def _read_dataset(root: str, result: DatasetResult, unreadable: dict[str, str] | None) -> dict[str, Any]:
    """Return the result of an export, and the manifest of the dataset unless it was replaced or removed since."""
    dataset: DatasetManifest | None = None
    with noted(unreadable, result.uri):
        _check_reachable(root, result.uri)
        with suppress(TrainyardError):
            current = manifest.read_current(result.uri)
            dataset = current if current.content_hash == result.content_hash else None
    return {"result": result, "manifest": dataset}


def _check_reachable(root: str, uri: str) -> None:
    """Raise TrainyardError if a URI of a record is not in the storage: whoever may write a record names any."""
    if not uris.is_reachable(root, uri):
        raise TrainyardError(f"it is not in the storage {root}, so the report does not read it")


def _read_usages(directory: str, unreadable: dict[str, str]) -> list[ResourceUsage]:
    """Return the resource usage of the applications; none, and a note, where it cannot be read."""
    with noted(unreadable, "usage"):
        return resource_usage.read_run(directory)
    return []
