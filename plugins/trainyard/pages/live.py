"""What of a run is under way: tasks that have begun and neither ended nor failed, and how far their gangs are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard import storage
from trainyard.pages.runs import Run
from trainyard.report import curves
from trainyard.report.curves import Chart
from trainyard.schemas import events, failure, run_record, worker_progress
from trainyard.schemas.specs import SPECS
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.train import TrainSpec
from trainyard.schemas.worker_progress import GroupProgress

OVER = ("success", "failed")
"""States of Airflow's in which nothing of a run is under way."""


@dataclass(frozen=True)
class UnderWay:
    """A task that runs. `epochs` are those asked for, None of what has none; `charts` are of those that are over."""

    task: str
    job: str
    epochs: int | None
    progress: GroupProgress | None
    charts: Sequence[Chart]


def under_way(run: Run) -> list[UnderWay]:
    """The tasks of a run that have begun and not ended, by name."""
    if run.state in OVER:
        return []
    specs = [_spec(storage.join(run.directory, "specs", name)) for name in _specs(run.directory)]
    return [_under_way(spec) for spec in specs if not _ended(spec)]


def _specs(directory: str) -> list[str]:
    return [name for name in storage.list_names(storage.join(directory, "specs")) if not name.startswith(".")]


def _spec(uri: str) -> JobSpec:
    text = storage.read(uri)
    return SPECS[json.loads(text)["document"]].from_json(text, origin=uri)


def _ended(spec: JobSpec) -> bool:
    ends = (run_record.read_latest(spec.task_key), failure.read_latest(spec.task_key))
    return any(end is not None and end.task_key.try_number >= spec.task_key.try_number for end in ends)


def _under_way(spec: JobSpec) -> UnderWay:
    told = events.counted(spec.task_key.directory, spec.task_key.task, "rank 0", "epoch")
    return UnderWay(
        task=spec.task_key.task, job=spec.KIND.removesuffix(" spec"),
        epochs=spec.options.epochs if isinstance(spec, TrainSpec) else None,
        progress=worker_progress.read_latest(spec.task_key), charts=curves.of_epochs(told),
    )  # fmt: skip
