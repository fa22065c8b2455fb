"""Which version of the user's code does a task run? A commit of git, and the code that is shipped."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainyard.schemas.specs.job import Code

_SECONDS = 5
"""How long git may take: a report without a commit is better than a task that waits."""
_DIGITS = 16


def describe_code(archives: Sequence[str], dag_file: Path, task_instance: Any = None) -> Code:
    """Return the version of the code that a task ships.

    Args:
        archives: The archives of code, whose names end with a checksum.
        dag_file: The file of the DAG, whose repository counts.
        task_instance: The task instance, whose DAG bundle may have a version.
    """
    shipped = [Path(archive).stem.rpartition("-")[2] for archive in archives]
    bundle = getattr(getattr(task_instance, "bundle_instance", None), "version", None)
    if isinstance(bundle, str) and bundle:
        return Code(archive=shipped[0] if shipped else None, commit=bundle[:_DIGITS])
    folder = dag_file.parent
    commit = _run_git(folder, "rev-parse", "HEAD")
    changes = _run_git(folder, "status", "--porcelain", "--", ".") if commit else None
    return Code(
        archive=shipped[0] if shipped else None, commit=commit[:_DIGITS] if commit else None, is_changed=bool(changes)
    )


def _run_git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints; None without git, outside of a repository, or if it takes too long."""
    command = ["git", "-C", str(folder), "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments]
    try:
        ran = subprocess.run(  # noqa: S603 - in the folder of a DAG, whose code runs anyway
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.strip()
