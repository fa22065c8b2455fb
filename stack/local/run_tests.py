"""Run the tests: suites of folders, three at a time, each in a process and an Airflow home of its own.

    python -m stack.local.run_tests [full | faults]

Without a marker the tests that have one of both are left out; with one only the tests that it selects run. The last
lines name the tests that failed, what was not run because a program is not installed, and what `make test-all` adds.
What pytest prints is in `.run/tests/SUITE.log` or `SUITE-MARKER.log`, and the time of each test in an XML file beside
it, which `bench/tests.py` sums.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stack.hadoop.jars import fetch_jars
from stack.hosts.bed import find_obstacle
from stack.matrix.results import Counts, read_report

ROOT = Path(__file__).parents[2]
PROCESSES = 3
"""One more than the cores of a small machine: a third of the time a suite waits for what it has started or killed."""
PASSED, FAILED, NO_TESTS = 0, 1, 5
"""Exit statuses of pytest."""

COMMAND = '. stack/local/env.sh && exec pytest "$@"'
NO_BROWSER = (
    "NOT RUN: tests of pages in a browser. Install chromium and chromedriver: apt-get install chromium chromium-driver"
)
NO_HADOOP = "NOT RUN: tests/cluster. Install Maven, which fetches Hadoop: apt-get install maven, or brew install maven"
NO_HOSTS = "NOT RUN: tests on several hosts. "
"""What the reason follows."""
SELECTIONS = {"": "not full and not faults", "full": "full and not faults", "faults": "faults"}
"""What pytest selects by a marker of the command line, or without one."""

ADDED = """`make test-all` adds the tests marked `full`: all examples and the code of all pages of the documentation,
packed environments, Spark with an object store, lineage, and a fault of each kind, on Hadoop and of Airflow's
processes. `make faults` has the other faults."""


@dataclass(frozen=True)
class Suite:
    """Tests that share what they start: a Spark session, an Airflow, a Hadoop.

    Attributes:
        name: Its name.
        paths: What pytest collects.
        without: What of it another suite has.
        needs_hadoop: Whether it starts a Hadoop.
    """

    name: str
    paths: tuple[str, ...]
    without: tuple[str, ...] = ()
    needs_hadoop: bool = False


WORKERS = ("tests/trainer/group", "tests/trainer/strategies", "tests/trainer/run")
SUITES: tuple[Suite, ...] = (
    Suite("workers", (*WORKERS, "tests/security")),
    Suite("hadoop", ("tests/cluster",), needs_hadoop=True),
    Suite("etl", ("tests/etl",)),
    Suite("airflow", ("tests/plugins", "tests/stack", "tests/packaging")),
    Suite("trainer", ("tests/trainer", "tests/gpu", "tests/stored"), without=WORKERS),
    Suite("pipelines", ("tests/dags", "tests/docs")),
)
"""All tests. The longest suites of `make test` are first, so that all processes end at about the same time."""
LONGEST = {"full": ("pipelines", "hadoop", "airflow")}
"""The suites that are first with a marker, by which others are the longest."""


@dataclass(frozen=True)
class Report:
    """What came of a suite: the numbers of tests, and the tests that failed.

    Attributes:
        status: pytest's exit status.
        seconds: How long it ran.
        passed: The number of tests that passed.
        failed: The number of those that failed, or whose fixtures did.
        failures: pytest's lines of those.
    """

    status: int
    seconds: float
    passed: int = 0
    failed: int = 0
    failures: tuple[str, ...] = field(default=())


def main(arguments: Sequence[str]) -> int:
    """Run all suites, print what came of them, and return 1 if a test failed."""
    if not sys.platform.startswith("linux"):
        print("make test runs on Linux; elsewhere run make check and make demo", file=sys.stderr)
        return 1
    marker = arguments[0] if arguments else ""
    if marker not in SELECTIONS:
        print(f"{marker!r} is no marker of suites; write full, faults, or nothing", file=sys.stderr)
        return 2
    selected, suites, not_run = SELECTIONS[marker], order_suites(marker), []
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        selected += " and not browser"
        not_run.append(NO_BROWSER)
    if obstacle := find_obstacle():
        selected += " and not hosts"
        not_run.append(NO_HOSTS + obstacle)
    if not can_start_hadoop():
        suites = tuple(suite for suite in suites if not suite.needs_hadoop)
        not_run.append(NO_HADOOP)
    with ThreadPoolExecutor(PROCESSES) as pool, _interruptible(pool) as processes:
        futures = {suite.name: pool.submit(run_suite, suite, marker, selected, processes) for suite in suites}
        reports = {name: future.result() for name, future in futures.items()}
    print(*summarize(reports, [*not_run, *([] if marker else [ADDED])]), sep="\n")
    return int(any(report.status != PASSED for report in reports.values()))


def order_suites(marker: str) -> tuple[Suite, ...]:
    """Return the suites in the order in which they start."""
    longest = LONGEST.get(marker, ())
    return tuple(sorted(SUITES, key=lambda suite: (*longest, suite.name).index(suite.name)))


def can_start_hadoop() -> bool:
    """Fetch Hadoop's jars, and return whether that was possible."""
    try:
        fetch_jars()
    except SystemExit as error:
        print(error, file=sys.stderr)
        return False
    return True


def run_suite(suite: Suite, marker: str, selected: str, processes: set[subprocess.Popen[str]]) -> Report:
    """Run tests of a suite, and print each line of pytest with the suite's name.

    Args:
        suite: The suite.
        marker: What the names of its files end with.
        selected: The value of pytest's option -m.
        processes: Where pytest's process is added.
    """
    folder = ROOT / ".run" / "tests"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{suite.name}-{marker}" if marker else suite.name
    log, results = folder / f"{name}.log", folder / f"{name}.xml"
    results.unlink(missing_ok=True)
    environment = os.environ | {"TRAINYARD_HOME": str(folder / suite.name), "PYTHONUNBUFFERED": "1"}
    others = (f"--ignore={path}" for path in suite.without)
    arguments = ("-m", selected, f"--junitxml={results}", *suite.paths, *others)
    started = time.monotonic()
    process = subprocess.Popen(
        ["/bin/bash", "-euo", "pipefail", "-c", COMMAND, "bash", *arguments], cwd=ROOT, env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
    )  # fmt: skip
    processes.add(process)
    assert process.stdout
    with log.open("w") as file:
        for line in process.stdout:
            file.write(line)
            print(f"{suite.name} | {line}", end="", flush=True)
    return build_report(process.wait(), time.monotonic() - started, log.read_text(), results)


def build_report(status: int, seconds: float, log: str, results: Path) -> Report:
    """Return what came of a suite.

    Args:
        status: pytest's exit status. It is a success if no test of the suite was selected.
        seconds: How long it ran.
        log: What pytest printed.
        results: The file of pytest's option --junitxml; there is none if pytest did not end by itself.
    """
    failures = tuple(line for line in log.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    counts = read_report(results.read_text()) if results.exists() else Counts()
    return Report(PASSED if status == NO_TESTS else status, seconds, counts.passed, counts.failed, failures)


def summarize(reports: Mapping[str, Report], remarks: Sequence[str]) -> Iterator[str]:
    """Yield the last lines: the tests that failed, the time of each suite, remarks, and the numbers of tests."""
    for name, report in reports.items():
        yield from (f"{name} | {line}" for line in report.failures)
    for name, report in reports.items():
        ended = "" if report.status in (PASSED, FAILED) else f"; pytest ended with status {report.status}"
        yield f"{name}: {report.passed} passed, {report.failed} failed in {report.seconds / 60:.1f} minutes{ended}"
    yield from remarks
    passed, failed = sum(r.passed for r in reports.values()), sum(r.failed for r in reports.values())
    yield f"{passed} passed, {failed} failed"


@contextmanager
def _interruptible(pool: ThreadPoolExecutor) -> Iterator[set[subprocess.Popen[str]]]:
    """Yield a set of processes that are interrupted if this one is, so that tests end the systems that they started.

    Args:
        pool: What starts them. It starts no other one afterwards.
    """
    processes: set[subprocess.Popen[str]] = set()

    def forward(number: int, _: object) -> None:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield processes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
