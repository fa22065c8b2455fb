"""Describe a run in a few lines, from its records."""

from __future__ import annotations

from typing import Any

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.links import report_uri
from trainyard.planning.paths import path_safe
from trainyard.report import render
from trainyard.schemas.runs import outcomes
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.text import table


def show(directory: str) -> str:
    """Return a line for each stage of a run, their warnings, what cannot be read, and the path of its report.

    Raises:
        TrainyardError: The directory has no run record.
    """
    unreadable: dict[str, str] = {}
    records = outcomes.read_run(directory, unreadable)
    if not records and not unreadable:
        raise TrainyardError(f"{directory} is not the directory of a run: it has no run record.")
    rows = [[r.task_key.task, r.status, f"{r.seconds:.1f}", _summary(r)] for r in records]
    lines = [table(["stage", "status", "seconds", "result"], rows)]
    warned = [(record.task_key.task, record.result.warnings) for record in records if record.result]
    if warnings := [f"warning: {task}: {text}" for task, texts in warned for text in texts]:
        lines += ["", *warnings]
    if unreadable:
        lines += ["", *(f"cannot be read: {name}: {why}" for name, why in unreadable.items())]
    render.refresh(directory)
    report = report_uri(directory)
    if storage.exists(report):
        lines += ["", f"report  {storage.local_path(report) or report}"]
    return "\n".join(lines)


def newest_run(root: str, dag_id: str) -> str:
    """Return the directory of the DAG's run of which a record or failure was written last.

    Raises:
        TrainyardError: The DAG has no run below `root`.
    """
    runs = uris.join(root, "runs", path_safe(dag_id))
    directories = [uris.join(runs, name) for name in storage.list_names(runs)]
    for directory in sorted(directories, key=_last_change, reverse=True):
        if _is_readable(directory):
            return directory
    raise TrainyardError(f"DAG {dag_id!r} has no readable run in {runs}.")


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
    return ", ".join(_figures(record.output))


def _figures(output: dict[str, Any]) -> list[str]:
    figures = []
    for name, value in output.items():
        if isinstance(value, dict):
            figures += _figures(value)
        elif isinstance(value, float):
            figures.append(f"{name} {value:.4g}")
        elif isinstance(value, int):
            figures.append(f"{name} {value}")
    return figures
