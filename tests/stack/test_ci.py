"""CI fails if the stack of containers fails, and passes if there was too little time for the stack."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 82 * 60
"""Seconds after which CI ends the stack."""


def run_ci(
    folder: Path, stack: str, test_seconds: int = 0, tests: str = "true", matrix: str = "true"
) -> subprocess.CompletedProcess[str]:
    """Run CI with shell commands in place of make's targets of these names; the tests took `test_seconds`."""
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    (folder / ".venv/bin").mkdir(parents=True)
    make = f'case "$1" in test) {tests};; matrix) {matrix};; *) {stack};; esac'
    for name, script in {"make": make, "docker": "true", ".venv/bin/uv": "true"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "SECONDS": str(test_seconds)}
    return subprocess.run([folder / ".ci/run"], env=environment, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("failing", ["tests", "matrix", "stack"])
def test_a_failure_of_any_part_fails_ci(tmp_path: Path, failing: str) -> None:
    assert run_ci(tmp_path, **{"stack": "true", failing: "exit 2"}).returncode == 2


def test_success_prints_no_error(tmp_path: Path) -> None:
    process = run_ci(tmp_path, "true")
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize("left", [2, 0, -60])
def test_a_stack_without_time_left_is_reported_and_does_not_fail_ci(tmp_path: Path, left: int) -> None:
    process = run_ci(tmp_path, "sleep 600", test_seconds=LIMIT - left)
    assert process.returncode == 0 and "NOT TESTED" in process.stderr
