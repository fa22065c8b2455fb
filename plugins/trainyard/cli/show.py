"""What became of a run, in a few lines, from its records."""

from __future__ import annotations

from typing import Any

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.links import report_uri
from trainyard.planning.paths import path_safe
from trainyard.schemas import run_record
from trainyard.schemas.run_record import RunRecord
from trainyard.table import table


def show(directory: str) -> str:
    """A line for each stage, and where the report lies.

    Raises TrainyardError when no application has left a record there.
    """
    records = run_record.read_run(directory)
    if not records:
        raise TrainyardError(f"{directory} holds no run: no application has written a record there.")
    rows = [[r.task_key.task, r.status, f"{r.seconds:.1f}", _summary(r)] for r in records]
    lines = [table(["stage", "status", "seconds", "result"], rows)]
    report = report_uri(directory)
    if storage.exists(report):
        lines += ["", f"report  {storage.local_path(report) or report}"]
    return "\n".join(lines)


def newest_run(root: str, dag_id: str) -> str:
    """The directory of the DAG's run whose last application started last. Raises TrainyardError when it has none."""
    runs = storage.join(root, "runs", path_safe(dag_id))
    started = {name: run_record.read_run(storage.join(runs, name))[-1:] for name in storage.list_names(runs)}
    found = {name: records[0].started_at for name, records in started.items() if records}
    if not found:
        raise TrainyardError(f"DAG {dag_id!r} has no run in {runs}.")
    return storage.join(runs, max(found, key=lambda name: found[name]))


def _summary(entry: RunRecord) -> str:
    if entry.error:
        return entry.error.splitlines()[0]
    return ", ".join(_figures(entry.output))


def _figures(output: dict[str, Any]) -> list[str]:
    found = []
    for name, value in output.items():
        if isinstance(value, dict):
            found += _figures(value)
        elif isinstance(value, float):
            found.append(f"{name} {value:.4g}")
        elif isinstance(value, int):
            found.append(f"{name} {value}")
    return found
