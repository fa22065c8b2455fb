"""Describe a run in a few lines, from its records."""

from __future__ import annotations

from typing import Any

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.links import report_uri
from trainyard.planning.paths import path_safe
from trainyard.schemas import outcomes
from trainyard.schemas.run_record import RunRecord
from trainyard.table import table


def show(directory: str) -> str:
    """Return a line for each stage of a run, and the path of its report.

    Raises:
        TrainyardError: The directory has no run record.
    """
    records = outcomes.read_run(directory)
    if not records:
        raise TrainyardError(f"{directory} is not the directory of a run: it has no run record.")
    rows = [[r.task_key.task, r.status, f"{r.seconds:.1f}", _summary(r)] for r in records]
    lines = [table(["stage", "status", "seconds", "result"], rows)]
    report = report_uri(directory)
    if storage.exists(report):
        lines += ["", f"report  {storage.local_path(report) or report}"]
    return "\n".join(lines)


def newest_run(root: str, dag_id: str) -> str:
    """Return the directory of the DAG's run whose last application started last.

    Raises:
        TrainyardError: The DAG has no run below `root`.
    """
    runs = storage.join(root, "runs", path_safe(dag_id))
    started = {name: _last_start(storage.join(runs, name)) for name in storage.list_names(runs)}
    if not any(started.values()):
        raise TrainyardError(f"DAG {dag_id!r} has no readable run in {runs}.")
    return storage.join(runs, max(started, key=lambda name: started[name]))


def _last_start(directory: str) -> float:
    """Return the start of a run's last application; 0 without readable records, as of an earlier release."""
    try:
        return max((record.started_at for record in outcomes.read_run(directory)), default=0.0)
    except TrainyardError:
        return 0.0


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
