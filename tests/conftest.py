"""Fixtures of several folders."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

ROOT = Path(__file__).parent.parent
_EXIT_STATUS = pytest.StashKey[int]()
LARGE_YOUNG_GENERATION = "-Xms1g -Xmn512m"
"""Options of a JVM that runs thousands of small jobs: it collects garbage a tenth of its time otherwise."""
SYSTEMS = ("cluster", "airflow", "spark", "ranks", "browser", "environment", "hosts", "slow")
"""The markers of tests that start something, the costliest first."""
STARTED_BY = {"browser": "browser", "spark": "spark", "pair": "ranks"}
"""The markers of tests that use a fixture."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the limit of unit tests, which `make check` sets.

    It is one of processor time, which, unlike the duration, hardly depends on other work. An environment whose modules
    have not been compiled yet exceeds it.
    """
    text = "fail a test without a marker of what it starts if it takes a core for longer"
    parser.addoption("--unit-seconds", type=float, default=float("inf"), help=text)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a module of which `-m` selects no test: imports of torch or Spark take most of a short run."""
    expression = config.getoption("markexpr")
    if not expression or " or " in expression or not collection_path.name.startswith("test_"):
        return None
    left_out = {*re.findall(r"not (\w+)", expression)}
    required = {*re.findall(r"\w+", expression)} - left_out - {"not", "and"}
    text = collection_path.read_text()
    of_all_tests = {
        *re.findall(r"mark\.(\w+)", "".join(re.findall(r"^pytestmark = (?:\[[^\]]*|.*)", text, re.MULTILINE)))
    }
    by_fixture = {system for fixture, system in STARTED_BY.items() if fixture in text}
    named = {name for name in required if f"mark.{name}" in text} | by_fixture
    return bool(of_all_tests & left_out) or bool(required - named) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a browser, a Spark session or workers by the fixtures that start them."""
    for item in items:
        for fixture, system in STARTED_BY.items():
            if isinstance(item, pytest.Function) and fixture in item.fixturenames:
                item.add_marker(system)


def pytest_collection_finish() -> None:
    """Keep imported objects out of the garbage collector, which takes an eighth of the time of unit tests otherwise."""
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the exit status for `pytest_unconfigure`."""
    session.config.stash[_EXIT_STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Let the garbage collector have them again: modules in C complain of what is left at the end of a process.

    A process in which a call does not return ends at once: see `end_process`.
    """
    gc.unfreeze()
    if deadlines := sys.modules.get("trainyard.deadlines"):
        deadlines.end_process(config.stash.get(_EXIT_STATUS, 1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record the systems and processor time of a test, and fail a unit test that takes too long."""
    report = yield
    systems = [name for name in SYSTEMS if item.get_closest_marker(name)]
    if call.when == "setup":
        item.stash[_STARTED] = _measure_processor_time(systems)
    elif call.when == "call":
        seconds = _measure_processor_time(systems) - item.stash[_STARTED]
        item.user_properties += [("systems", " ".join(systems)), ("processor_seconds", f"{seconds:.2f}")]
        limit = item.config.getoption("--unit-seconds")
        if not systems and report.passed and seconds > limit:
            report.outcome = "failed"
            report.longrepr = (
                f"{item.nodeid} takes {seconds:.1f} s of a core; a test without a marker takes {limit:g} s at most. "
                f"Make it faster, or mark it with what it starts: {', '.join(SYSTEMS)}."
            )
    return report


_STARTED = pytest.StashKey[float]()


def _measure_processor_time(systems: list[str]) -> float:
    """Return the processor time of this process, and of its descendants if a test starts some, in seconds."""
    times = os.times()
    total = times.user + times.system + times.children_user + times.children_system
    for process in psutil.Process().children(recursive=True) if systems else ():
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:  # it has ended
            continue
    return total


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session on two cores, with the settings of jobs; its Python workers import from the working tree."""
    from pyspark.sql import SparkSession

    from trainyard.backends.driver import DEFAULTS
    from trainyard.etl.datasource import source

    os.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / part) for part in ("plugins", "", "dags", "tests"))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {LARGE_YOUNG_GENERATION}"
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "3")
        .config(map=DEFAULTS)
        .config("spark.python.daemon.module", "trainyard.etl.jobs.daemon")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs connections that end after pytest
    source.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Chromium without a window."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    quiet = (
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1300,2400",
    )  # fmt: skip
    for argument in (*quiet, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
    yield driver
    driver.quit()
