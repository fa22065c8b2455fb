"""Read the runs of a pipeline for the pages: which runs exist, newest first, and what their stages did.

To list runs takes one directory listing and one database query, of the newest rows only. Only the runs that a page
shows are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from sqlalchemy import select

from trainyard.files import storage, uris
from trainyard.pages.airflow_api import DagRun, create_session
from trainyard.planning.paths import path_safe, run_directory
from trainyard.report.overview import Busy, compute_busy
from trainyard.report.stages import Stage, build_stages
from trainyard.schemas.runs import outcomes
from trainyard.usage import resource_usage, usage_report
from trainyard.usage.resource_usage import ResourceUsage
from trainyard.usage.usage_report import RunUsage, UsageLine

T = TypeVar("T")
ROWS = 25
"""Rows on one page."""
_FETCHED_ROWS = 100
MAX_REPORTED_RUNS = 200
"""The newest runs that the usage report covers."""


@dataclass(frozen=True)
class Run:
    """One run with a directory below a storage; `run_id` is the directory's name where Airflow deleted the run."""

    dag_id: str
    run_id: str
    directory: str
    state: str | None = None
    started_at: datetime | None = None


@dataclass(frozen=True)
class Row:
    """A run in a list: its stages, or in `error` why they cannot be read, and its resource usage."""

    run: Run
    stages: Sequence[Stage]
    error: str
    usage: UsageLine | None

    @property
    def busy(self) -> Busy | None:
        """The busy share of what the run allocated."""
        return compute_busy(self.usage)


@dataclass(frozen=True)
class Page(Generic[T]):
    """Page `number` of `pages`, counted from 1, with some of `total` items."""

    items: Sequence[T]
    number: int
    pages: int
    total: int


def list_pipelines(root: str, readable: set[str]) -> list[str]:
    """Return the readable DAGs that have runs below `root`, by name."""
    directories = set(_list_names(uris.join(root, "runs")))
    return sorted(dag_id for dag_id in readable if path_safe(dag_id) in directories)


def list_runs(root: str, dag_id: str, directories: Set[str], count: int) -> list[Run]:
    """Return the first `count` runs of the DAG below `root`.

    Those in Airflow's database come first, the newest of them first, then deleted ones by name. No more rows of the
    database are read than that takes: it may have far more runs than directories.

    Args:
        root: The storage.
        dag_id: The DAG.
        directories: The names of the directories of its runs.
        count: How many runs to return.
    """
    parent = uris.join(root, "runs", path_safe(dag_id))
    query = select(DagRun.run_id, DagRun.state, DagRun.start_date).where(DagRun.dag_id == dag_id)
    query = query.order_by(DagRun.run_after.desc(), DagRun.id.desc())
    found: dict[str, Run] = {}
    with create_session(scoped=False) as session:
        for run_id, state, started_at in session.execute(query.execution_options(yield_per=_FETCHED_ROWS)):
            if len(found) == min(count, len(directories)):
                break
            if (name := path_safe(run_id)) in directories:
                found[name] = Run(dag_id, run_id, uris.join(parent, name), state, started_at)
    deleted = sorted(directories - found.keys(), reverse=True)[: count - len(found)]
    return [*found.values(), *(Run(dag_id, name, uris.join(parent, name)) for name in deleted)]


def read_page(root: str, dag_id: str, number: int) -> Page[Run]:
    """Return page `number` of the runs of the DAG below `root`, or the nearest page that exists."""
    directories = list_directories(root, dag_id)
    number, pages = _choose_page(len(directories), number)
    items = list_runs(root, dag_id, directories, number * ROWS)[(number - 1) * ROWS :]
    return Page(items, number, pages, len(directories))


def list_directories(root: str, dag_id: str) -> set[str]:
    """Return the names of the directories of the DAG's runs below `root`."""
    return set(_list_names(uris.join(root, "runs", path_safe(dag_id))))


def list_newest_runs(root: str, directories: Mapping[str, set[str]], count: int) -> list[Run]:
    """Return those of the newest `count` runs of some DAGs, by id, that have one of the `directories`, newest first."""
    query = select(DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.start_date).where(DagRun.dag_id.in_(directories))
    with create_session(scoped=False) as session:
        rows = session.execute(query.order_by(DagRun.run_after.desc(), DagRun.id.desc()).limit(count)).all()
    return [
        Run(dag_id, run_id, run_directory(root, dag_id, run_id), state, started_at)
        for dag_id, run_id, state, started_at in rows
        if path_safe(run_id) in directories[dag_id]
    ]


def find_run(root: str, dag_id: str, run_id: str) -> Run | None:
    """Return the run with this id, None when it has no directory below `root`."""
    directory = run_directory(root, dag_id, run_id)
    if not _list_names(directory):
        return None
    query = select(DagRun.state, DagRun.start_date).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    with create_session(scoped=False) as session:
        row = session.execute(query).one_or_none()
    return Run(dag_id, run_id, directory, *(row or ()))


def paginate(items: Sequence[T], number: int) -> Page[T]:
    """Return page `number` of the items, or the nearest page that exists."""
    number, pages = _choose_page(len(items), number)
    return Page(items[(number - 1) * ROWS : number * ROWS], number, pages, len(items))


def _choose_page(total: int, number: int) -> tuple[int, int]:
    """Return the number of the page to show, and the number of pages."""
    pages = max(1, -(-total // ROWS))
    return min(max(number, 1), pages), pages


def read_stages(run: Run) -> list[Stage]:
    """Return the stages of a run that have ended, in the order of their start, failed attempts without record included.

    Raises:
        TrainyardError: A record cannot be read.
    """
    return build_stages([end for end in outcomes.read_run(run.directory) if end.task_key.dag_id == run.dag_id])


def try_read_stages(run: Run) -> tuple[list[Stage], str]:
    """Return the stages and an empty error, or no stages and why they cannot be read."""
    try:
        return read_stages(run), ""
    except Exception as error:  # each file system raises exceptions of its own
        return [], str(error)


def build_row(run: Run) -> Row:
    """Return the row of a run in a list."""
    return Row(run, *try_read_stages(run), build_usage_line(run, read_usages(run)))


def read_usages(run: Run) -> list[ResourceUsage]:
    """Return the resource usage of the applications of a run; none where it cannot be read."""
    with suppress(Exception):
        return resource_usage.read_run(run.directory)
    return []


def build_run_usage(run: Run, usages: Sequence[ResourceUsage]) -> RunUsage | None:
    """Return the usage of a run, None when none of its applications has one."""
    applications = tuple(map(usage_report.convert_usage, usages))
    return RunUsage(run.dag_id, run.run_id, applications) if applications else None


def build_usage_line(run: Run, usages: Sequence[ResourceUsage]) -> UsageLine | None:
    """Return the sum of a run's usage, None when none of its applications has one."""
    usage = build_run_usage(run, usages)
    return usage_report.sum_runs(run.run_id, [usage]) if usage else None


def _list_names(directory: str) -> list[str]:
    return [name for name in storage.list_names(directory) if not name.startswith(".")]
