"""Commands about runs of DAGs: `trainyard run ...`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainyard.cli.output import add_output, show, show_rows, show_unreadable
from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.planning.paths import path_safe, run_directory
from trainyard.report.settings import describe_training, name_members
from trainyard.report.stages import describe_result
from trainyard.schemas.results import EnsembleResult, EvaluationsResult, ModelResult, PromotionResult
from trainyard.schemas.runs import outcomes
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.text import table


def add_commands(commands: Any) -> None:
    """Add the group `run` to a parser's commands."""
    group = commands.add_parser("run", help="list runs of DAGs, and show what their tasks returned")
    actions = group.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the runs in a storage, the last changed first")
    listing.set_defaults(run=_list)
    listing.add_argument("dag_id", metavar="DAG_ID", nargs="?", help="a DAG (default: all)")
    listing.add_argument("--limit", type=int, default=20, metavar="N", help="how many runs (default 20)")
    shown = actions.add_parser("show", help="print the result of each task of a run")
    shown.set_defaults(run=_show)
    shown.add_argument(
        "run_name", metavar="RUN", help="a DAG, for its newest run; DAG_ID/RUN_ID; or the URI or path of its directory"
    )
    for action in (listing, shown):
        action.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")
        add_output(action)


Trained = Mapping[str, Sequence[tuple[str, str]]]
"""Task -> the names and values of what it trained."""


def describe(
    records: Sequence[RunRecord],
    unreadable: Mapping[str, str],
    report: str | None,
    trained: Trained | None = None,
    members: Mapping[str, str] | None = None,
) -> str:
    """Return a line for each stage of a run, what was trained, warnings, what cannot be read, and the report's path.

    Args:
        records: The records of the stages.
        unreadable: What cannot be read, and why.
        report: The URI of the report.
        trained: What was trained.
        members: What distinguishes each training of a mapped task from the others, by task.
    """
    rows = [[_title(r.task_key.task, members or {}), r.status, f"{r.seconds:.1f}", _summary(r)] for r in records]
    lines = [table(["stage", "status", "seconds", "result"], rows)]
    for task, settings in (trained or {}).items():
        lines += ["", table([task, ""], [[name.lower(), value] for name, value in settings])]
    warned = [(record.task_key.task, record.result.warnings) for record in records if record.result]
    if warnings := [f"warning: {task}: {text}" for task, texts in warned for text in texts]:
        lines += ["", *warnings]
    if unreadable:
        lines += ["", *(f"cannot be read: {name}: {why}" for name, why in unreadable.items())]
    if report:
        lines += ["", f"report  {storage.local_path(report) or report}"]
    return "\n".join(lines)


def _title(task: str, members: Mapping[str, str]) -> str:
    return f"{task} ({members[task]})" if members.get(task) else task


def find_run(root: str, name: str) -> str:
    """Return the directory of a run.

    Args:
        root: The storage root.
        name: A DAG, for its newest run; or `DAG_ID/RUN_ID`.

    Raises:
        TrainyardError: The DAG has no run.
    """
    dag_id, slash, run_id = name.partition("/")
    return run_directory(root, dag_id, run_id) if slash else newest_run(root, dag_id)


def list_runs(root: str, dag_id: str | None, limit: int, unreadable: dict[str, str]) -> list[dict[str, Any]]:
    """Return a row for each of the runs below a storage root that changed last.

    A row has the tasks that have ended, not those that still run or wait.

    Args:
        root: The storage root.
        dag_id: The DAG, None for all.
        limit: How many runs.
        unreadable: Where to note why a record cannot be read.
    """
    top = uris.join(root, "runs")
    dags = [path_safe(dag_id)] if dag_id else _list_visible(top)
    names = [f"{dag}/{run}" for dag in dags for run in _list_visible(uris.join(top, dag))]
    changed = {name: _last_change(uris.join(top, name)) for name in names}
    newest = sorted(filter(changed.get, changed), key=lambda name: changed[name], reverse=True)
    return [_describe_run(top, name, changed[name], unreadable) for name in newest[:limit]]


def newest_run(root: str, dag_id: str) -> str:
    """Return the directory of the DAG's run of which a record or failure was written last.

    Raises:
        TrainyardError: The DAG has no run below `root`.
    """
    runs = uris.join(root, "runs", path_safe(dag_id))
    directories = [uris.join(runs, name) for name in _list_visible(runs)]
    for directory in sorted(directories, key=_last_change, reverse=True):
        if _is_readable(directory):
            return directory
    raise TrainyardError(f"DAG {dag_id!r} has no readable run in {runs}.")


def _list_visible(directory: str) -> list[str]:
    """Return the names in a directory, without those of runs that are being removed."""
    return [name for name in storage.list_names(directory) if not name.startswith(".")]


def _describe_run(top: str, name: str, changed: float, unreadable: dict[str, str]) -> dict[str, Any]:
    """Return the row of a run; note why its records cannot be read."""
    problems: dict[str, str] = {}
    ends = outcomes.read_run(uris.join(top, name), problems)
    unreadable |= {f"{name}/{file}": why for file, why in problems.items()}
    failed = [end.task_key.task for end in ends if end.status == "failed"]
    return {
        "run": name, "ended": len(ends), "failed": ", ".join(failed),
        "changed": datetime.fromtimestamp(changed, UTC).isoformat(timespec="seconds"),
    }  # fmt: skip


def _list(chosen: argparse.Namespace) -> int:
    unreadable: dict[str, str] = {}
    show_rows(chosen, list_runs(_read_root(chosen), chosen.dag_id, chosen.limit, unreadable), "There is no run.")
    return show_unreadable(unreadable)


def _show(chosen: argparse.Namespace) -> int:
    from trainyard.links import report_uri  # imports Airflow, after main has set the level of its log
    from trainyard.report import render

    name = chosen.run_name
    directory = name if uris.is_absolute(name) or Path(name).is_dir() else find_run(_read_root(chosen), name)
    unreadable: dict[str, str] = {}
    records = outcomes.read_run(directory, unreadable)
    if not records and not unreadable:
        raise TrainyardError(f"{directory} is not the directory of a run: it has no run record.")
    render.refresh(directory)
    report = uri if storage.exists(uri := report_uri(directory)) else None
    results = {record.task_key.task: record.result for record in records if isinstance(record.result, ModelResult)}
    root = directory.rstrip("/").rsplit("/", 3)[0]  # ROOT/runs/DAG/RUN
    specs = render.read_specs(directory, records, unreadable)
    trained = {task: describe_training(root, spec, results.get(task)) for task, spec in specs.items()}
    members = name_members(root, specs)
    value = {
        "run": directory, "tasks": records, "trained": {task: dict(lines) for task, lines in trained.items()},
        "members": members, "unreadable": unreadable, "report": report,
    }  # fmt: skip
    show(chosen, value, lambda: describe(records, unreadable, report, trained, members))
    return 0


def _read_root(chosen: argparse.Namespace) -> str:
    from trainyard.hooks.trainyard import TrainyardHook

    return TrainyardHook(chosen.conn_id).get_conn().storage


def _last_change(directory: str) -> float:
    """Return when the newest record or failure of a run was written, without reading any; 0 if there is none."""
    files = (file for part in ("records", "failures") for file in storage.find_files(uris.join(directory, part)))
    return max((file.modified or 0.0 for file in files), default=0.0)


def _is_readable(directory: str) -> bool:
    """Return whether a run has records or failures of this release."""
    return bool(outcomes.read_run(directory, unreadable={}))


def _summary(record: RunRecord) -> str:
    if record.error:
        return record.error.splitlines()[0]
    if isinstance(record.result, EnsembleResult | EvaluationsResult | PromotionResult):
        return describe_result(record)
    return ", ".join(_figures(record.output))


def _figures(output: dict[str, Any]) -> list[str]:
    figures = []
    for name, value in output.items():
        if isinstance(value, dict):
            figures += [f"{name} {figure}" if name == "unseen" else figure for figure in _figures(value)]
        elif isinstance(value, float):
            figures.append(f"{name} {value:.4g}")
        elif isinstance(value, int):
            figures.append(f"{name} {value}")
    return figures
