"""The runs of a pipeline as pages show them: which there are, newest first, and what became of their stages.

A list of runs takes one listing of a directory and one question to Airflow's database; only what a page shows of them
is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from airflow.models.dagrun import DagRun
from sqlalchemy import select
from sqlalchemy.orm import Session

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.planning.paths import path_safe, run_directory
from trainyard.schemas import failure, run_record
from trainyard.schemas.failure import Failure
from trainyard.schemas.run_record import RunRecord
from trainyard.usage import resource_usage, usage_report
from trainyard.usage.resource_usage import ResourceUsage
from trainyard.usage.usage_report import RunUsage, UsageLine

T = TypeVar("T")
ROWS = 25
"""How many are shown on one page."""
IN_USAGE_REPORT = 200
"""How many of the newest runs the ledger is about."""


@dataclass(frozen=True)
class Run:
    """One run whose directory is below a storage root; one that Airflow has forgotten goes by its directory's name."""

    dag_id: str
    run_id: str
    directory: str
    state: str | None = None
    begun: datetime | None = None


@dataclass(frozen=True)
class Stage:
    """What became of a task; `waited` are the seconds from the end of all stages before it, None of the first."""

    record: RunRecord
    waited: float | None


@dataclass(frozen=True)
class Row:
    """A run in a list: its stages, or why they cannot be read, and its line of the ledger if there is one."""

    run: Run
    stages: Sequence[Stage]
    trouble: str
    line: UsageLine | None


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some of `total` items, those of page `number` of `pages`, counted from 1."""

    items: Sequence[T]
    number: int
    pages: int
    total: int


def pipelines(root: str, readable: set[str]) -> list[str]:
    """The readable DAGs that have runs below `root`, by name."""
    there = set(_names(storage.join(root, "runs")))
    return sorted(dag_id for dag_id in readable if path_safe(dag_id) in there)


def of_pipeline(session: Session, root: str, dag_id: str) -> list[Run]:
    """All runs of the DAG below `root`: those that Airflow knows, newest first, and then others by name."""
    place = storage.join(root, "runs", path_safe(dag_id))
    there = set(_names(place))
    asked = select(DagRun.run_id, DagRun.state, DagRun.start_date).where(DagRun.dag_id == dag_id)
    known = {
        name: Run(dag_id, run_id, storage.join(place, name), state, begun)
        for run_id, state, begun in session.execute(asked.order_by(DagRun.run_after.desc(), DagRun.id.desc()))
        if (name := path_safe(run_id)) in there
    }
    forgotten = [Run(dag_id, name, storage.join(place, name)) for name in sorted(there - set(known), reverse=True)]
    return [*known.values(), *forgotten]


def newest(session: Session, root: str, dag_ids: Sequence[str], count: int) -> list[Run]:
    """Those of the newest `count` runs of these DAGs that are below `root`, newest first."""
    there = {dag_id: set(_names(storage.join(root, "runs", path_safe(dag_id)))) for dag_id in dag_ids}
    asked = select(DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.start_date).where(DagRun.dag_id.in_(dag_ids))
    found = session.execute(asked.order_by(DagRun.run_after.desc(), DagRun.id.desc()).limit(count))
    return [
        Run(dag_id, run_id, run_directory(root, dag_id, run_id), state, begun)
        for dag_id, run_id, state, begun in found
        if path_safe(run_id) in there[dag_id]
    ]


def one(session: Session, root: str, dag_id: str, run_id: str) -> Run | None:
    """The run of this id, None when there is nothing of it below `root`."""
    directory = run_directory(root, dag_id, run_id)
    if not _names(directory):
        return None
    asked = select(DagRun.state, DagRun.start_date).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    return Run(dag_id, run_id, directory, *(session.execute(asked).one_or_none() or ()))


def page(items: Sequence[T], number: int) -> Page[T]:
    """The items of one page; the nearest that there is, where there is none of that number."""
    pages = max(1, -(-len(items) // ROWS))
    number = min(max(number, 1), pages)
    return Page(items[(number - 1) * ROWS : number * ROWS], number, pages, len(items))


def stages(run: Run) -> list[Stage]:
    """What became of the tasks of a run that have ended, in the order in which they began.

    A try that failed and left no record is there too. Raises TrainyardError for what cannot be read.
    """
    ends = {found.task_key.task: found for found in run_record.read_run(run.directory)}
    for failed in failure.read_run(run.directory):
        known = ends.get(failed.task_key.task)
        if known is None or known.task_key.try_number < failed.task_key.try_number:
            ends[failed.task_key.task] = _without_record(failed)
    mine = [end for end in ends.values() if end.task_key.dag_id == run.dag_id]
    return waits(sorted(mine, key=lambda end: end.started_at))


def waits(records: Sequence[RunRecord]) -> list[Stage]:
    """Records in the order of their beginning, with how long each waited for those before to have ended."""
    found: list[Stage] = []
    ended: float | None = None
    for one in records:
        found.append(Stage(one, None if ended is None else max(0.0, one.started_at - ended)))
        ended = max(ended or 0.0, one.started_at + one.seconds)
    return found


def readable_stages(run: Run) -> tuple[list[Stage], str]:
    """As `stages`, and an empty text; or none, and why they cannot be read."""
    try:
        return stages(run), ""
    except (TrainyardError, OSError) as error:
        return [], str(error)


def row(run: Run) -> Row:
    """What a list shows of a run."""
    return Row(run, *readable_stages(run), line(run, usages(run)))


def usages(run: Run) -> list[ResourceUsage]:
    """What the applications of a run held, as far as that can be read."""
    with suppress(TrainyardError, OSError):
        return resource_usage.read_run(run.directory)
    return []


def account(run: Run, usages: Sequence[ResourceUsage]) -> RunUsage | None:
    """The ledger's account of a run; None when nothing is known of what it held."""
    entries = tuple(map(usage_report.application_usage, usages))
    return RunUsage(run.dag_id, run.run_id, entries) if entries else None


def line(run: Run, usages: Sequence[ResourceUsage]) -> UsageLine | None:
    """A run as one line of the ledger."""
    found = account(run, usages)
    return usage_report.sum_runs(run.run_id, [found]) if found else None


def _without_record(failed: Failure) -> RunRecord:
    return RunRecord(
        task_key=failed.task_key, job="", application="", started_at=failed.at, seconds=0.0, status="failed",
        error=failed.error,
    )  # fmt: skip


def _names(directory: str) -> list[str]:
    return [name for name in storage.list_names(directory) if not name.startswith(".")]
