"""The examples, as a user runs them: `airflow dags test`, real data, real Spark, a real browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from trainyard.contract import record
from trainyard.contract.record import RunRecord

pytestmark = [pytest.mark.airflow, pytest.mark.spark]
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Run:
    storage: Path
    directory: Path
    stages: dict[str, RunRecord]


def run_dag(dag_id: str, home: Path) -> Run:
    """One run of an example in an Airflow of its own; fails the test when the run fails."""
    script = '. stack/local/env.sh && airflow dags test "$0"'
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script, dag_id], cwd=ROOT, env=os.environ | _environment(home),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    [directory] = (home / "storage/runs" / dag_id).iterdir()
    stages = {found.place.task: found for found in record.read(str(directory))}
    assert {found.status for found in stages.values()} == {"succeeded"}
    return Run(home / "storage", directory, stages)


def _environment(home: Path) -> dict[str, str]:
    return {"TRAINYARD_HOME": str(home), "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags")}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_dag("digits", tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def penguins(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_dag("penguins", tmp_path_factory.mktemp("penguins"))


def test_digits_are_told_apart(digits: Run) -> None:
    export, found = digits.stages["export"].output, digits.stages["evaluate"].output
    assert export["rows"] == 1797 and set(export["splits"]) == {"train", "validation", "test"}
    assert found["rows"] == export["splits"]["test"]
    assert found["metrics"]["accuracy"] >= 0.95
    assert sum(map(sum, found["metrics"]["confusion_matrix"])) == found["rows"]


def test_each_digit_has_its_prediction(digits: Run) -> None:
    predictions = pd.read_parquet(digits.storage / "digits/predictions")
    labels = {path.stem: int(path.parent.name) for path in (digits.storage / "digits/source").rglob("*.png")}
    assert predictions["id"].is_unique and set(predictions["id"]) == set(labels)
    assert (predictions["digit"] == predictions["id"].map(labels)).mean() > 0.95
    assert predictions["probability"].between(0.1, 1).all()


def test_penguins_are_weighed(penguins: Run) -> None:
    assert penguins.stages["export"].output["rows"] == 342, "two of the 344 have no body mass"
    assert penguins.stages["evaluate"].output["metrics"]["mae"] < 0.4, "kilograms; the masses differ by 0.8 (std)"
    assert len(pd.read_parquet(penguins.storage / "penguins/predictions")) == 342


def test_the_run_is_shown_as_a_table(digits: Run) -> None:
    command = [sys.executable, "-m", "trainyard", "show", str(digits.directory)]
    shown = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT / "plugins")}, capture_output=True, text=True, check=True
    ).stdout
    assert "1,797" in shown or "1797" in shown
    assert str(digits.directory / "report.html") in shown


def test_the_trace_is_what_perfetto_opens(digits: Run) -> None:
    events = json.loads((digits.directory / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} >= {"X", "M", "C"}
    assert all(isinstance(event["pid"], int) and isinstance(event["tid"], int) for event in events)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
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


def test_the_report_shows_the_run_in_a_browser(digits: Run, browser: webdriver.Chrome, tmp_path: Path) -> None:
    browser.get((digits.directory / "report.html").as_uri())
    for section in ("stages", "timeline", "curves", "phases"):
        assert browser.find_element(By.ID, section).size["height"] > 60, section
    bars = browser.find_elements(By.CSS_SELECTOR, "#timeline rect")
    assert len(bars) > 20 and all(bar.size["height"] > 0 for bar in bars)
    rows = {text.text for text in browser.find_elements(By.CSS_SELECTOR, "#timeline svg text")}
    assert {"export · driver", "train · rank 0", "train · rank 1", "evaluate · driver", "predict · driver"} <= rows
    assert "-bound" in browser.find_element(By.CSS_SELECTOR, "#phases .limit").text
    assert len(browser.find_elements(By.CSS_SELECTOR, ".matrix tr")) == 11
    assert "1,797" in browser.find_element(By.ID, "stages").text
    assert browser.get_log("browser") == [], "nothing is fetched and nothing fails"
    assert browser.save_screenshot(str(tmp_path / "report.png"))
    page = browser.execute_script("return [document.body.scrollWidth, window.innerWidth]")
    assert page[0] <= page[1], "nothing sticks out of the page"
