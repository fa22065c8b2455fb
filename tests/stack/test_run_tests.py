"""`make test` fails if either process of tests does, and says which tests a machine could not run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ("bash", "cat", "dirname", "grep", "mkdir", "sed", "tail")
PYTEST = """
case "$*" in
  *--ignore=tests/cluster*) echo "others: $*"; exit {others};;
  *)
    echo "on Hadoop: $*"
    echo "FAILED tests/cluster/test_x.py::test_y - boom"
    echo "==== 1 failed, 2 passed in 1s ===="
    exit {cluster};;
esac
"""


def run_tests(
    folder: Path, *, browser: bool = True, hadoop: bool = True, others: int = 0, cluster: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run the script with programs in place of pytest and Python, and only the programs that it names."""
    scripts = {
        "pytest": PYTEST.format(others=others, cluster=cluster),
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


def test_with_everything_all_tests_run(tmp_path: Path) -> None:
    process = run_tests(tmp_path)
    assert process.returncode == 0
    assert "cluster | on Hadoop: tests/cluster tests/trainer\n" in process.stdout
    assert "others: --ignore=tests/cluster --ignore=tests/trainer\n" in process.stdout
    assert "NOT RUN" not in process.stdout


@pytest.mark.parametrize(("others", "cluster"), [(1, 0), (0, 1), (1, 1)])
def test_a_failure_of_either_process_is_a_failure(tmp_path: Path, others: int, cluster: int) -> None:
    assert run_tests(tmp_path, others=others, cluster=cluster).returncode == 1


def test_the_last_lines_are_the_failures_on_hadoop(tmp_path: Path) -> None:
    assert run_tests(tmp_path, cluster=1).stdout.splitlines()[-2:] == [
        "cluster | FAILED tests/cluster/test_x.py::test_y - boom",
        "cluster | ==== 1 failed, 2 passed in 1s ====",
    ]


def test_without_a_browser_its_tests_are_not_run_and_the_summary_says_so(tmp_path: Path) -> None:
    process = run_tests(tmp_path, browser=False)
    assert process.returncode == 0
    assert "others: -m not browser --ignore=tests/cluster --ignore=tests/trainer\n" in process.stdout
    assert process.stdout.splitlines()[-1].startswith("NOT RUN: tests of pages in a browser. Install chromium")


def test_without_hadoop_the_other_tests_run_and_the_summary_says_so(tmp_path: Path) -> None:
    process = run_tests(tmp_path, hadoop=False)
    assert process.returncode == 0
    assert "on Hadoop" not in process.stdout
    assert "others: --ignore=tests/cluster\n" in process.stdout
    assert process.stdout.splitlines()[-1].startswith("NOT RUN: tests/cluster. Install Maven")
