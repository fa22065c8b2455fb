"""The digits run as users run them: `airflow dags test`, real data, real Spark, a real browser."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import requests
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as expected
from selenium.webdriver.support.wait import WebDriverWait

from trainyard.schemas import model_artifact
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.runs import run_record
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.runs.worker_progress import GroupProgress, WorkerProgress
from trainyard.schemas.specs.train import TrainSpec

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Run:
    """A run that has succeeded: its storage, its directory, and the record of each task."""

    storage: Path
    directory: Path
    stages: dict[str, RunRecord]


@dataclass(frozen=True)
class RunningDag:
    """A run of an example in its own Airflow."""

    dag_id: str
    home: Path
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, dag_id: str, home: Path) -> RunningDag:
        script = '. stack/local/env.sh && airflow dags test "$0" >"$1" 2>&1'
        command = ["bash", "-euo", "pipefail", "-c", script, dag_id, str(home / "log")]
        environment = os.environ | _build_environment(home)
        return cls(
            dag_id, home, subprocess.Popen(command, cwd=ROOT, env=environment, text=True, start_new_session=True)
        )

    def wait(self) -> Run:
        """Wait for the end of the run; fail the test if the run fails."""
        assert self.process.wait() == 0, (self.home / "log").read_text()[-7000:]
        [directory] = (self.home / "storage/runs" / self.dag_id).iterdir()
        stages = {record.task_key.task: record for record in run_record.read_run(str(directory))}
        assert {record.status for record in stages.values()} == {"succeeded"}
        return Run(self.home / "storage", directory, stages)


def _build_environment(home: Path) -> dict[str, str]:
    return {"TRAINYARD_HOME": str(home), "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags")}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDag]:
    run = RunningDag.start("digits", tmp_path_factory.mktemp("digits"))
    yield run
    if run.process.poll() is None:
        os.killpg(run.process.pid, signal.SIGTERM)


@pytest.fixture(scope="module")
def digits(running: RunningDag) -> Run:
    return running.wait()


def test_the_digits_are_classified(digits: Run) -> None:
    export, evaluation = digits.stages["export"].output, digits.stages["evaluate"].output
    assert export["rows"] == 1797 and set(export["splits"]) == {"train", "validation", "test"}
    assert evaluation["rows"] == export["splits"]["test"]
    assert evaluation["metrics"]["accuracy"] >= 0.95
    matrix = Evaluation.load(evaluation["evaluation"]).model.metrics["confusion_matrix"]
    assert sum(map(sum, matrix)) == evaluation["rows"]


def test_each_digit_has_its_prediction(digits: Run) -> None:
    predictions = pd.read_parquet(digits.storage / "digits/predictions")
    labels = {path.stem: int(path.parent.name) for path in (digits.storage / "digits/source").rglob("*.png")}
    assert predictions["id"].is_unique and set(predictions["id"]) == set(labels)
    assert (predictions["digit"] == predictions["id"].map(labels)).mean() > 0.95
    assert predictions["probability"].between(0.1, 1).all()


def test_the_model_that_meets_the_requirement_is_promoted(digits: Run) -> None:
    champion = str(digits.storage / "digits/champion")
    evaluation = digits.stages["evaluate"].output
    assert model_artifact.read_current(champion).weights_sha256 == evaluation["weights_sha256"]
    low, high = evaluation["intervals"]["accuracy"]
    assert low < evaluation["metrics"]["accuracy"] <= high
    assert digits.stages["predict"].output["model"] == f"file://{champion}"


def test_the_run_is_shown_as_a_table(digits: Run) -> None:
    command = [sys.executable, "-m", "trainyard", "run", "show", str(digits.directory)]
    shown = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT / "plugins")}, capture_output=True, text=True, check=True
    ).stdout
    assert "1,797" in shown or "1797" in shown
    assert str(digits.directory / "report.html") in shown


def test_the_trace_has_the_format_of_perfetto(digits: Run) -> None:
    events = json.loads((digits.directory / "trace.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} >= {"X", "M", "C"}
    assert all(isinstance(event["pid"], int) and isinstance(event["tid"], int) for event in events)


def test_the_report_shows_the_run_in_a_browser(digits: Run, browser: webdriver.Chrome, tmp_path: Path) -> None:
    browser.get((digits.directory / "report.html").as_uri())
    for section in ("stages", "timeline", "training-train"):
        assert browser.find_element(By.ID, section).size["height"] > 60, section
    assert browser.find_element(By.CSS_SELECTOR, "#timeline canvas").size["height"] > 60
    timeline = browser.find_element(By.CSS_SELECTOR, "#timeline-chart + script").get_attribute("textContent")
    rows = {row["label"]: len(row["names"]) for row in json.loads(timeline)["rows"]}
    assert {"export · driver", "train · worker 0", "train · worker 1", "evaluate · driver", "predict · driver"} <= set(
        rows
    )
    assert rows["train · worker 0"] > 20
    assert "Accuracy" in browser.find_element(By.ID, "overview").text
    assert "-bound" in browser.find_element(By.CSS_SELECTOR, "#training-train .bottleneck").text
    assert len(browser.find_elements(By.CSS_SELECTOR, ".matrix tr")) == 11
    assert " to " in browser.find_element(By.CSS_SELECTOR, ".evaluation .metrics").text, "an interval"
    assert len(browser.find_elements(By.CSS_SELECTOR, ".examples tr")) == 11
    plots = browser.find_elements(By.CSS_SELECTOR, ".evaluation .chart + script")
    counts = [len(json.loads(plot.get_attribute("textContent"))["series"]) for plot in plots]
    assert counts == [10, 1], "ten classes, and calibration"
    assert "1,797" in browser.find_element(By.ID, "stages").text
    assert browser.get_log("browser") == [], "nothing is fetched, and nothing fails"
    assert browser.save_screenshot(str(tmp_path / "report.png"))
    page = browser.execute_script("return [document.body.scrollWidth, window.innerWidth]")
    assert page[0] <= page[1], "no element is wider than the page"


@pytest.fixture(scope="module")
def pages(running: RunningDag, digits: Run) -> Iterator[str]:
    """The URL of the Airflow in which digits ran."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home, url = running.home, f"http://127.0.0.1:{port}"
    environment = os.environ | _build_environment(home) | {
        "AIRFLOW__API__PORT": str(port), "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    }  # fmt: skip
    command = ["bash", "-euo", "pipefail", "-c", '. stack/local/env.sh && exec airflow api-server >"$0" 2>&1']
    server = subprocess.Popen([*command, str(home / "pages.log")], cwd=ROOT, env=environment, start_new_session=True)
    try:
        while not _is_up(url):
            assert server.poll() is None, (home / "pages.log").read_text()[-7000:]
            time.sleep(0.2)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def _is_up(url: str) -> bool:
    try:
        return requests.get(f"{url}/api/v2/version", timeout=30).ok
    except requests.RequestException:
        return False


def open_pipelines(pages: str, browser: webdriver.Chrome) -> WebDriverWait[webdriver.Chrome]:
    """Open the page of pipelines through Airflow's navigation; return what waits for the browser."""
    wait = WebDriverWait(browser, 120)
    browser.get(pages)
    wait.until(expected.element_to_be_clickable((By.CSS_SELECTOR, "a[href$='plugin/trainyard']"))).click()
    wait.until(expected.frame_to_be_available_and_switch_to_it((By.CSS_SELECTOR, "iframe[title=Trainyard]")))
    return wait


def test_airflow_links_to_the_run_and_back(pages: str, digits: Run, browser: webdriver.Chrome) -> None:
    wait = open_pipelines(pages, browser)

    def follow(link: str, then: str) -> None:
        wait.until(expected.element_to_be_clickable((By.CSS_SELECTOR, link))).click()
        wait.until(expected.presence_of_element_located((By.CSS_SELECTOR, then)))
        width = browser.execute_script("return [document.body.scrollWidth, window.innerWidth]")
        assert width[0] <= width[1], "no element is wider than the page"

    follow("a[href=usage]", "#most-idle")
    assert "digits" in browser.find_element(By.ID, "most-idle").text
    follow("nav a", "#pipelines")
    follow("#pipelines h3 a", "#runs")
    assert "evaluate: accuracy" in browser.find_element(By.ID, "figures").text
    assert "there is no champion" in browser.find_element(By.CLASS_NAME, "champion").text
    follow("#runs th a", "#stages")
    rows = [row.text.split() for row in browser.find_elements(By.CSS_SELECTOR, "#stages tbody tr")]
    assert [row[:2] for row in rows] == [[task, "succeeded"] for task in digits.stages]
    usage = [row.text.split() for row in browser.find_elements(By.CSS_SELECTOR, "#usage tbody tr")]
    assert [row[0] for row in usage] == [task for task in digits.stages if task != "promote"], "it has no application"
    if folder := os.environ.get("TRAINYARD_SCREENSHOTS"):
        browser.set_window_size(1300, 760)
        assert browser.save_screenshot(str(Path(folder) / "run.png"))
    browser.find_element(By.CSS_SELECTOR, "a[data-out]").click()
    browser.switch_to.default_content()
    wait.until(expected.url_contains("/dags/digits/runs/manual__"))


def test_the_pages_follow_the_color_scheme_of_airflow(pages: str, browser: webdriver.Chrome) -> None:
    wait = open_pipelines(pages, browser)
    wait.until(expected.presence_of_element_located((By.ID, "pipelines")))
    colors = set()
    for scheme in ("light", "dark"):
        browser.execute_script("parent.document.documentElement.style.colorScheme = arguments[0]", scheme)
        wait.until(lambda page, scheme=scheme: scheme in page.find_element(By.TAG_NAME, "html").get_attribute("style"))
        colors.add(browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color"))
    assert len(colors) == 2


def test_a_run_in_progress_is_updated_without_a_reload(pages: str, digits: Run, browser: webdriver.Chrome) -> None:
    spec = TrainSpec.load(str(digits.directory / "specs" / "train.json"))
    task_key = spec.task_key.model_copy(update={"directory": str(digits.directory.parent / "in-progress")})
    copy = spec.model_copy(update={"task_key": task_key})
    (Path(task_key.directory) / "specs").mkdir(parents=True)
    (Path(task_key.directory) / "specs" / "train.json").write_text(copy.to_json())
    script = ". stack/local/env.sh && airflow dags trigger digits --run-id in-progress"  # queued: there is no scheduler
    environment = os.environ | _build_environment(digits.storage.parent)
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, env=environment, check=True)

    def report(step: int) -> None:
        worker = WorkerProgress(rank=0, host="node1", phase="forward", epoch=3, step=step)
        GroupProgress(task_key=task_key, at=time.time(), workers=(worker,)).save()

    report(17)
    browser.get(f"{pages}/trainyard/run?conn_id=trainyard_default&dag_id=digits&run_id=in-progress")
    wait = WebDriverWait(browser, 120)
    row = (By.CSS_SELECTOR, ".running tbody tr")
    wait.until(expected.text_to_be_present_in_element(row, "0 node1 3 17 forward"))
    browser.execute_script("window.mark = 'the same page'")
    report(18)
    wait.until(expected.text_to_be_present_in_element(row, "0 node1 3 18 forward"))
    assert browser.execute_script("return window.mark") == "the same page"
