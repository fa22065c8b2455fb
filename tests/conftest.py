"""Fixtures of several folders."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

ROOT = Path(__file__).parent.parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use a browser."""
    for item in items:
        if isinstance(item, pytest.Function) and "browser" in item.fixturenames:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session on two cores, with the settings of jobs; its Python workers import from the working tree."""
    from pyspark.sql import SparkSession

    from trainyard.backends.driver import DEFAULTS
    from trainyard.etl.datasource import source

    os.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / part) for part in ("plugins", "", "dags", "tests"))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "3")
        .config(map=DEFAULTS)
        .config("spark.python.daemon.module", "trainyard.trainer.group.daemon")
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
