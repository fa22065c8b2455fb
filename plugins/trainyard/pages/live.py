"""Read the running tasks of a run, and the progress of their worker groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from trainyard.errors import noted
from trainyard.files import storage, uris
from trainyard.pages.runs import Run
from trainyard.report import curves
from trainyard.report.curves import Chart
from trainyard.schemas.runs import events, failure, run_record, worker_progress
from trainyard.schemas.runs.failure import Failure
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.runs.worker_progress import GroupProgress
from trainyard.schemas.specs import load_spec
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.train import TrainSpec

CACHED_SPECS = 1 << 13
"""The specs that are kept in memory: those of a run that is shown again are not read again."""


class StartedTask(NamedTuple):
    """The spec of a task that runs, and when its newest attempt wrote it, in seconds since the epoch."""

    spec: JobSpec
    at: float | None


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
    for started in _read_running_specs(run, unreadable):
        with noted(unreadable, started.spec.task_key.task):
            tasks.append(_read_task(*started))
    return tasks


def list_running_names(run: Run) -> list[str]:
    """Return the names of the running tasks of a run, without those that cannot be read."""
    return [started.spec.task_key.task for started in _read_running_specs(run, unreadable={})]


def _read_running_specs(run: Run, unreadable: dict[str, str]) -> list[StartedTask]:
    running: list[StartedTask] = []
    if is_over(run):
        return running
    directory = uris.join(run.directory, "specs")
    with noted(unreadable, directory):
        records = {record.task_key.task: record for record in run_record.read_run(run.directory, unreadable)}
        failures = {failed.task_key.task: failed for failed in failure.read_run(run.directory, unreadable)}
        for name, size, modified in storage.find_files(directory):
            with noted(unreadable, name):
                if name.startswith(".") or unreadable.keys() & {f"records/{name}", f"failures/{name}"}:
                    continue
                uri = uris.join(directory, name)
                spec = load_spec(uri) if modified is None else _read_spec_once(uri, size, modified)
                task = spec.task_key.task
                if not _has_ended(spec.task_key.try_number, records.get(task), failures.get(task)):
                    running.append(StartedTask(spec, modified))
    return running


@lru_cache(CACHED_SPECS)
def _read_spec_once(uri: str, size: int, modified: float) -> JobSpec:
    return load_spec(uri)


def _has_ended(attempt: int, record: RunRecord | None, failed: Failure | None) -> bool:
    """Return whether the record or the failure of a task is of this attempt or a later one."""
    if any(end and end.task_key.try_number >= attempt for end in (record, failed)):
        return True
    return record is not None and run_record.last_attempt(record) >= attempt


def _read_task(spec: JobSpec, started_at: float | None) -> RunningTask:
    points = events.read_counters(spec.task_key.directory, spec.task_key.task, "worker 0", events.AXES)
    return RunningTask(
        task=spec.task_key.task, job=spec.KIND.removesuffix(" spec"),
        epochs=spec.options.epochs if isinstance(spec, TrainSpec) else None,
        progress=worker_progress.read_latest(spec.task_key, started_at),
        charts=curves.build_charts(curves.read_points(points)),
    )  # fmt: skip
