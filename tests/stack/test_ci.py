"""What the stack of containers means for CI: it fails with it, and is not cut off by it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHIN = 82 * 60
"""Seconds after which CI ends whatever goes on."""


def ci(folder: Path, stack: str, tested: int = 0, tests: str = "true") -> subprocess.CompletedProcess[str]:
    """CI where `tests` and `stack` stand for what make does, and the former took so many seconds."""
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    for name, script in {"make": f'if [ "$1" = test ]; then {tests}; else {stack}; fi', "docker": "true"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "SECONDS": str(tested)}
    return subprocess.run([folder / ".ci/run"], env=environment, check=False, capture_output=True, text=True)


@pytest.mark.parametrize(("tests", "stack"), [("exit 2", "true"), ("true", "exit 2")])
def test_whatever_fails_fails_all(tmp_path: Path, tests: str, stack: str) -> None:
    assert ci(tmp_path, stack, tests=tests).returncode == 2


def test_what_succeeds_says_nothing(tmp_path: Path) -> None:
    done = ci(tmp_path, "true")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("left", [2, 0, -60])
def test_a_stack_that_has_no_time_left_is_told_and_fails_nothing(tmp_path: Path, left: int) -> None:
    done = ci(tmp_path, "sleep 600", tested=WITHIN - left)
    assert done.returncode == 0 and "NOT TESTED" in done.stderr
