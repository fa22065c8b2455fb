"""What became of a run, in a few lines, from its records."""

from __future__ import annotations

from typing import Any

from trainyard.contract import record, storage
from trainyard.contract.errors import TrainyardError
from trainyard.contract.record import RunRecord
from trainyard.links import report_uri
from trainyard.table import table


def show(directory: str) -> str:
    """A line for each stage, and where the report lies.

    Raises TrainyardError when no application has left a record there.
    """
    records = record.read(directory)
    if not records:
        raise TrainyardError(f"{directory} holds no run: no application has written a record there.")
    rows = [[r.place.task, r.status, f"{r.seconds:.1f}", _summary(r)] for r in records]
    lines = [table(["stage", "status", "seconds", "result"], rows)]
    report = report_uri(directory)
    if storage.exists(report):
        lines += ["", f"report  {storage.local_path(report) or report}"]
    return "\n".join(lines)


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
