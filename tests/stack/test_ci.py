"""CI fails if a part fails, and names the parts for which there was no time or no engine of containers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_ci(folder: Path, seconds: int = 0, **commands: str) -> subprocess.CompletedProcess[str]:
    """Run CI with shell commands in place of make's targets of these names, so many seconds after its start."""
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    (folder / ".venv/bin").mkdir(parents=True)
    targets = "".join(f"{name.replace('_', '-')}) {command};; " for name, command in commands.items())
    make = f'echo "$1"; case "$1" in {targets}*) true;; esac'
    for name, script in {"make": make, "docker": "true", ".venv/bin/uv": "true"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "SECONDS": str(seconds)}
    return subprocess.run([folder / ".ci/run"], env=environment, check=False, capture_output=True, text=True)


PARTS = ["test", "rest", "matrix", "fresh", "stack-up"]


@pytest.mark.parametrize("part", PARTS)
def test_a_failure_of_any_part_fails_ci(tmp_path: Path, part: str) -> None:
    assert run_ci(tmp_path, **{part: "exit 2"}).returncode == 2


def test_all_parts_run_and_success_prints_no_error(tmp_path: Path) -> None:
    process = run_ci(tmp_path)
    assert (process.returncode, process.stdout.split(), process.stderr) == (0, PARTS, "")


def test_parts_without_time_left_are_named_and_do_not_fail_ci(tmp_path: Path) -> None:
    process = run_ci(tmp_path, seconds=72 * 60)
    assert process.returncode == 0 and process.stdout.split() == ["test", "matrix", "fresh"]
    assert process.stderr.splitlines() == [
        "NOT TESTED: what make test leaves out: too little time is left",
        "NOT TESTED: the stack of containers: too little time is left",
    ]


def test_without_an_engine_of_containers_the_stack_is_named_and_does_not_fail_ci(tmp_path: Path) -> None:
    process = run_ci(tmp_path, **{"stack-up": "exit 69"})
    assert process.returncode == 0
    assert process.stderr == "NOT TESTED: the stack of containers: no engine of containers\n"
