"""`make test` fails if a suite of tests does, and says which tests a machine could not run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stack.local import run_tests
from stack.local.run_tests import ADDED, NO_BROWSER, NO_HADOOP, NO_HOSTS, SELECTIONS, SUITES, Suite, main, order_suites

ROOT = Path(__file__).parents[2]
PYTEST = """#!/bin/sh
echo "called with $*"
for results in "$@"; do case "$results" in --junitxml=*) break;; esac; done
case "$*" in
  *tests/cluster) status=$HADOOP;;
  *) status=0;;
esac
case $status in
  1) echo "FAILED tests/cluster/test_x.py::test_y - boom"; failure="<failure/>";;
esac
[ $status -gt 1 ] || echo "<testsuite><testcase/><testcase/><testcase>$failure</testcase></testsuite>" >"${results#*=}"
exit $status
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program in place of pytest, in which suites run; Hadoop, a browser and root are there."""
    for name, text in {"stack/local/env.sh": "", "bin/pytest": PYTEST}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("HADOOP", "0")
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(run_tests, "can_start_hadoop", lambda: True)
    monkeypatch.setattr(run_tests, "find_obstacle", lambda: "")
    monkeypatch.setattr(run_tests.shutil, "which", lambda program: f"/usr/bin/{program}")
    return tmp_path


def test_each_test_is_in_one_suite() -> None:
    folders = {str(file.parent.relative_to(ROOT)) for file in (ROOT / "tests").glob("*/**/test_*.py")}
    selected = {folder: [suite.name for suite in SUITES if _has(suite, folder)] for folder in folders}
    assert [folder for folder, suites in selected.items() if len(suites) != 1] == []


def _has(suite: Suite, folder: str) -> bool:
    """Return whether pytest collects the modules of a folder for a suite."""
    below = [any(f"{folder}/".startswith(f"{path}/") for path in paths) for paths in (suite.paths, suite.without)]
    return below == [True, False]


def test_each_selection_runs_all_suites_the_longest_first() -> None:
    for marker in SELECTIONS:
        assert sorted(order_suites(marker), key=SUITES.index) == list(SUITES)
    assert [suite.name for suite in order_suites("full")[:2]] == ["pipelines", "hadoop"]


def test_without_a_marker_all_suites_run_without_them(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    results = checkout / ".run/tests/hadoop.xml"
    assert f"hadoop | called with -m not full and not faults --junitxml={results} tests/cluster\n" in printed
    assert printed.count("called with") == len(SUITES) and "NOT RUN" not in printed
    assert printed.endswith(f"{ADDED}\n{3 * len(SUITES)} passed, 0 failed\n")


@pytest.mark.parametrize(("marker", "selected"), [("full", "full and not faults"), ("faults", "faults")])
def test_with_a_marker_only_those_tests_run_and_keep_the_results_of_the_others(
    checkout: Path, capsys: pytest.CaptureFixture[str], marker: str, selected: str
) -> None:
    assert main([]) == main([marker]) == 0
    assert f" -m {selected} --junitxml=" in capsys.readouterr().out
    files = {file.name for file in (checkout / ".run/tests").glob("hadoop*.xml")}
    assert files == {"hadoop.xml", f"hadoop-{marker}.xml"}


def test_the_failure_of_a_suite_is_a_failure_and_named_in_the_last_lines(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP", "1")
    assert main(["full"]) == 1
    lines = capsys.readouterr().out.splitlines()[-2 - len(SUITES) :]
    assert lines[0] == "hadoop | FAILED tests/cluster/test_x.py::test_y - boom"
    assert lines[-1] == f"{3 * len(SUITES) - 1} passed, 1 failed"


def test_a_suite_that_does_not_end_by_itself_is_a_failure(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP", "3")
    assert main(["full"]) == 1
    assert "hadoop: 0 passed, 0 failed in 0.0 minutes; pytest ended with status 3\n" in capsys.readouterr().out


def test_a_suite_without_tests_is_no_failure(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP", "5")
    assert main(["full"]) == 0


def test_without_a_browser_its_tests_are_not_run_and_the_summary_says_so(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tests.shutil, "which", lambda program: None)
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert (
        printed.count(" -m not full and not faults and not browser ") == len(SUITES)
        and NO_BROWSER in printed.splitlines()
    )


def test_without_root_tests_on_hosts_are_not_run_and_the_summary_says_so(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tests, "find_obstacle", lambda: "Hosts need root.")
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert printed.count(" and not hosts ") == len(SUITES) and f"{NO_HOSTS}Hosts need root." in printed.splitlines()


def test_without_hadoop_the_other_tests_run_and_the_summary_says_so(
    checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tests, "can_start_hadoop", lambda: False)
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert printed.count("called with") == len(SUITES) - 1 and NO_HADOOP in printed.splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_the_suites(checkout: Path, number: signal.Signals) -> None:
    """Also in the background, where a shell lets SIGINT be ignored."""
    (checkout / "bin" / "pytest").write_text(
        '#!/bin/sh\nsleep 100 &\ntrap \'touch "interrupted.$$"; kill $!; exit 2\' INT\ntouch "started.$$"\nwait\n'
    )
    program = (
        "import signal, sys; from pathlib import Path; from stack.local import run_tests\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "run_tests.ROOT = Path(sys.argv[1]); run_tests.can_start_hadoop = lambda: True; run_tests.main([])"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(checkout)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(checkout.glob("started.*"))) < run_tests.PROCESSES:
        assert process.poll() is None and time.monotonic() < deadline, list(checkout.rglob("*"))
        time.sleep(0.02)
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert len(list(checkout.glob("interrupted.*"))) == run_tests.PROCESSES
