"""Read the running tasks of a run, and the progress of their worker groups."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard import storage
from trainyard.errors import TrainyardError, noted
from trainyard.pages.runs import Run
from trainyard.report import curves
from trainyard.report.curves import Chart
from trainyard.schemas import events, failure, run_record, worker_progress
from trainyard.schemas.specs import SPECS
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.train import TrainSpec
from trainyard.schemas.worker_progress import GroupProgress

MARGIN_SECONDS = 60.0
"""So long after the spec of an attempt, nothing of an earlier attempt is written."""


@dataclass(frozen=True)
class RunningTask:
    """A task that runs. `epochs` is their total number, None where a job has none; `charts` cover those that ended."""

    task: str
    job: str
    epochs: int | None
    progress: GroupProgress | None
    charts: Sequence[Chart]


def is_over(run: Run) -> bool:
    """Return whether no task of a run can run: it has ended, or was deleted in Airflow."""
    return run.state in (None, "success", "failed")


def list_running_tasks(run: Run, unreadable: dict[str, str]) -> list[RunningTask]:
    """Return the tasks of a run that have started and not ended, by name; note those that are `unreadable`."""
    tasks = []
    for spec in _read_running_specs(run, unreadable):
        with noted(unreadable, spec.task_key.task):
            tasks.append(_read_task(spec))
    return tasks


def list_running_names(run: Run) -> list[str]:
    """Return the names of the running tasks of a run, without those that cannot be read."""
    return [spec.task_key.task for spec in _read_running_specs(run, unreadable={})]


def _read_running_specs(run: Run, unreadable: dict[str, str]) -> list[JobSpec]:
    running: list[JobSpec] = []
    if is_over(run):
        return running
    directory = storage.join(run.directory, "specs")
    with noted(unreadable, directory):
        ends = _list_ends(run)
        for name, _, begun in storage.find_files(directory):
            with noted(unreadable, name):
                if name.startswith(".") or ends.get(name, 0.0) > (begun or math.inf) + MARGIN_SECONDS:
                    continue
                if not _has_ended(spec := _read_spec(storage.join(directory, name))):
                    running.append(spec)
    return running


def _list_ends(run: Run) -> dict[str, float]:
    """Return the name of a spec -> when an attempt of its task ended, as the times of files have it."""
    ends: dict[str, float] = {}
    for part in ("records", "failures"):
        for name, _, ended in storage.find_files(storage.join(run.directory, part)):
            ends[name] = max(ends.get(name, 0.0), ended or 0.0)
    return ends


def _read_spec(uri: str) -> JobSpec:
    text = storage.read(uri)
    try:
        kind = SPECS[json.loads(text)["document"]]
    except (ValueError, KeyError, TypeError):
        raise TrainyardError(f"{uri} is not the spec of a job that this release of Trainyard runs.") from None
    return kind.from_json(text, origin=uri)


def _has_ended(spec: JobSpec) -> bool:
    record, failed = run_record.read_latest(spec.task_key), failure.read_latest(spec.task_key)
    attempts = [run_record.last_attempt(record)] if record else []
    attempts += [failed.task_key.try_number] if failed else []
    return max(attempts, default=0) >= spec.task_key.try_number


def _read_task(spec: JobSpec) -> RunningTask:
    epochs = events.read_counter(spec.task_key.directory, spec.task_key.task, "worker 0", "epoch")
    return RunningTask(
        task=spec.task_key.task, job=spec.KIND.removesuffix(" spec"),
        epochs=spec.options.epochs if isinstance(spec, TrainSpec) else None,
        progress=worker_progress.read_latest(spec.task_key), charts=curves.build_charts(curves.read_epochs(epochs)),
    )  # fmt: skip
