"""CI runs all of its parts, and fails if one does."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_ci(folder: Path, **commands: str) -> subprocess.CompletedProcess[str]:
    """Run CI with shell commands in place of make's targets of these names; the others succeed."""
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    (folder / ".venv/bin").mkdir(parents=True)
    targets = "".join(f"{name.replace('_', '-')}) {command};; " for name, command in commands.items())
    make = f'echo "$1"; case "$1" in {targets}*) true;; esac'
    for name, script in {"make": make, "docker": "true", ".venv/bin/uv": "true"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run([folder / ".ci/run"], env=environment, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("part", ["test", "rest", "matrix", "stack_up"])
def test_a_failure_of_any_part_fails_ci(tmp_path: Path, part: str) -> None:
    assert run_ci(tmp_path, **{part: "exit 2"}).returncode == 2


def test_all_parts_run_and_success_prints_no_error(tmp_path: Path) -> None:
    process = run_ci(tmp_path)
    assert (process.returncode, process.stdout.split(), process.stderr) == (
        0,
        ["test", "rest", "matrix", "stack-up"],
        "",
    )
