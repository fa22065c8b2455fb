"""Which version of the user's code does a task run? That of a DAG bundle or of git, and what is shipped."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainyard.schemas.specs.job import Code

SECONDS = 5
"""How long each of three commands of git may take: a report without a commit is better than a task that waits."""


def describe_code(archives: Sequence[str], dag_file: Path, task_instance: Any = None) -> Code:
    """Return the version of the code that a task ships.

    Args:
        archives: The archives of code, whose names end with a checksum.
        dag_file: The file of the DAG. Its repository counts if it has this file.
        task_instance: The task instance, whose DAG bundle may have a version.
    """
    archive = Path(archives[0]).stem.rpartition("-")[2] if archives else None
    bundle = getattr(getattr(task_instance, "bundle_instance", None), "version", None)
    if isinstance(bundle, str) and bundle:
        return Code(archive=archive, bundle_version=bundle)
    folder = dag_file.parent
    if _run_git(folder, "ls-files", "--error-unmatch", "--", dag_file.name) is None:
        return Code(archive=archive)
    changes = _run_git(folder, "status", "--porcelain", "--", ":/")
    return Code(
        archive=archive, commit=_run_git(folder, "rev-parse", "HEAD"),
        is_changed=None if changes is None else bool(changes),
    )  # fmt: skip


def _run_git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints; None without git, outside of a repository, or if it takes too long."""
    command = ["git", "-C", str(folder), "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        ran = subprocess.run(  # noqa: S603 - in the folder of a DAG, whose code runs anyway
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.strip()
