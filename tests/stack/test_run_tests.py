"""`make test` runs all tests in two processes, fails if either does, and says which tests a machine could not run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ("bash", "cat", "dirname", "grep", "mkdir", "sed", "tail")
PYTEST = """
case "$*" in
  *--ignore=*) echo "first: $*"; exit {first};;
  *) echo "run: $*"; echo "FAILED tests/dags/test_x.py::test_y - boom"; echo "==== 1 failed in 1s ===="; exit {second};;
esac
"""


def run_tests(
    folder: Path, *, browser: bool = True, hadoop: bool = True, first: int = 0, second: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run the script with programs in place of pytest and Python, and only the programs that it names."""
    scripts = {
        "pytest": PYTEST.format(first=first, second=second),
        ".venv/bin/python": f"exit {0 if hadoop else 1}",
        **({"chromium": "", "chromedriver": ""} if browser else {}),
    }
    for name, script in scripts.items():
        file = folder / (name if "/" in name else f"bin/{name}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    for name in PROGRAMS:
        (folder / "bin" / name).symlink_to(shutil.which(name) or name)
    (folder / "stack" / "local").mkdir(parents=True)
    (folder / "stack" / "local" / "env.sh").write_text("")
    shutil.copy(ROOT / "stack" / "local" / "test.sh", folder / "stack" / "local")
    environment = {"PATH": str(folder / "bin")}
    script = folder / "stack" / "local" / "test.sh"
    return subprocess.run([script], env=environment, check=False, capture_output=True, text=True)


def test_each_test_runs_in_one_of_the_processes(tmp_path: Path) -> None:
    process = run_tests(tmp_path)
    assert process.returncode == 0
    _, _, second = next(line for line in process.stdout.splitlines() if "run: " in line).partition("run: ")
    assert set(second.split()) < {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").iterdir()}
    assert "tests/cluster" in second
    assert f"first: {' '.join(f'--ignore={folder}' for folder in second.split())}\n" in process.stdout
    assert "NOT RUN" not in process.stdout


@pytest.mark.parametrize(("first", "second"), [(1, 0), (0, 1), (1, 1)])
def test_a_failure_of_either_process_is_a_failure(tmp_path: Path, first: int, second: int) -> None:
    assert run_tests(tmp_path, first=first, second=second).returncode == 1


def test_the_last_lines_are_the_failures_of_the_second_process(tmp_path: Path) -> None:
    assert run_tests(tmp_path, second=1).stdout.splitlines()[-2:] == [
        "second | FAILED tests/dags/test_x.py::test_y - boom",
        "second | ==== 1 failed in 1s ====",
    ]


def test_without_a_browser_its_tests_are_not_run_and_the_summary_says_so(tmp_path: Path) -> None:
    process = run_tests(tmp_path, browser=False)
    assert process.returncode == 0
    assert "first: -m not browser --ignore=" in process.stdout
    assert "run: -m not browser tests/" in process.stdout
    assert process.stdout.splitlines()[-1].startswith("NOT RUN: tests of pages in a browser. Install chromium")


def test_without_hadoop_the_other_tests_run_and_the_summary_says_so(tmp_path: Path) -> None:
    process = run_tests(tmp_path, hadoop=False)
    assert process.returncode == 0
    assert "--ignore=tests/cluster" in process.stdout
    assert "run: tests/dags" in process.stdout
    assert process.stdout.splitlines()[-1].startswith("NOT RUN: tests/cluster. Install Maven")
