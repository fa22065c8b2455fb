"""The pages as a user of Airflow sees them, in Chromium."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support import expected_conditions as expected
from selenium.webdriver.support.wait import WebDriverWait

from tests.plugins.browser_views import VIEWS, View
from tests.plugins.pages.conftest import NOON, Airflow
from tests.plugins.report import example
from trainyard.files import storage, uris
from trainyard.planning.paths import run_directory
from trainyard.report import render
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.failure import Failure
from trainyard.schemas.runs.worker_progress import GroupProgress, TrainingProgress, WorkerProgress
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec
from trainyard.usage import resource_usage

pytestmark = pytest.mark.airflow

DAG = {"conn_id": "trainyard_default", "dag_id": "ann.digits"}
RUN_IDS = [f"scheduled__2026-11-{day}T10:00:00+00:00" for day in (17, 18, 19, 20)]
PAGES = {
    "pipelines": "",
    "pipeline": f"pipeline?{urlencode(DAG)}",
    "run": f"run?{urlencode(DAG | {'run_id': RUN_IDS[0]})}",
    "failed": f"run?{urlencode(DAG | {'run_id': RUN_IDS[2]})}",
    "running": f"run?{urlencode(DAG | {'run_id': RUN_IDS[3]})}",
    "compare": f"compare?{urlencode(DAG)}&{urlencode([('run', run_id) for run_id in RUN_IDS[:2]])}",
    "models": f"models?{urlencode(DAG)}",
    "usage": "usage",
    "report": f"report?{urlencode(DAG | {'run_id': RUN_IDS[0]})}",
    "refused": f"run?{urlencode(DAG | {'run_id': 'unknown'})}",
}


@pytest.fixture(scope="module")
def address(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the pages, with runs of a pipeline: two that succeeded, one that failed, and one that runs."""
    import uvicorn

    root = tmp_path_factory.mktemp("storage").as_uri()
    with pytest.MonkeyPatch.context() as patch, socket.socket() as listener:
        connection = {"conn_type": "trainyard", "extra": {"storage": root}}
        patch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps(connection))
        write_runs(Airflow(server, root))
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        running = uvicorn.Server(uvicorn.Config(server, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/trainyard/"
        running.should_exit = True
        thread.join()


def write_runs(airflow: Airflow) -> None:
    """Write the runs, and add them to Airflow's database."""
    airflow.dag(DAG["dag_id"])
    for number, (run_id, state) in enumerate(zip(RUN_IDS, ("success", "success", "failed", "running"), strict=True)):
        directory = run_directory(airflow.root, DAG["dag_id"], run_id)
        records = example.build_records(directory, DAG["dag_id"], run_id)
        kept = {"success": 4, "failed": 1, "running": 1}[state]
        for record in records[:kept]:
            record.save()
        for usage in example.build_usages(records[:kept], gpus=1):
            resource_usage.save(usage, print)
        write_training(records[1].task_key, 0.01 * (number + 1), 1 + number / 5)
        if state == "success":
            render.render(directory)
        elif state == "failed":
            error = "Worker 1 on node2 ran out of GPU memory in the forward pass of step 17; set batch_size=32."
            Failure(task_key=records[1].task_key, at=example.STARTED_AT + 30, error=error).save()
        else:
            workers = tuple(WorkerProgress(rank=n, host=f"node{n}", phase="forward", epoch=8, step=17) for n in (0, 1))
            training = TrainingProgress(
                epoch=9, epochs=20, step=17, steps=23, loss=0.03, rows_per_second=8369, seconds_left=42
            )
            GroupProgress(task_key=records[1].task_key, at=NOON.timestamp(), workers=workers, training=training).save()
        add_to_database(run_id, number, state)


def write_training(task_key: Any, rate: float, scale: float) -> None:
    """Write the spec and the epochs of a training."""
    spec = TrainSpec.model_validate(
        {"task_key": task_key, "recipe": "toy.recipe:network", "dataset": "b", "model": "m",
         "recipe_params": {"learning_rate": rate}, "options": {"epochs": 20}}
    )  # fmt: skip
    storage.replace(uris.join(task_key.directory, "specs", "train.json"), spec.to_json().encode())
    with EventLog(task_key.directory, "train", "worker 0") as log:
        for epoch in range(1, 9):
            log.counter("epoch", epoch=epoch, **example.epoch_metrics(epoch, scale))


def add_to_database(run_id: str, number: int, state: str) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    at = NOON + timedelta(days=number)
    with create_session() as session:
        session.add(
            DagRun(dag_id=DAG["dag_id"], run_id=run_id, run_after=at, run_type="scheduled", state=state, start_date=at)
        )


@pytest.fixture
def user(browser: Any, address: str) -> Any:
    """A browser with a login."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="ann", role="VIEWER"))
    browser.get(f"{address}charts.js")
    browser.add_cookie({"name": "_token", "value": token, "path": "/"})
    return browser


@pytest.mark.parametrize(("scheme", "width"), VIEWS)
@pytest.mark.parametrize("page", list(PAGES))
def test_a_reader_can_read_all_of_it(
    user: Any, address: str, tmp_path: Path, page: str, scheme: str, width: int
) -> None:
    view = View(user, scheme, width)
    if page == "refused":
        user.get(f"{address}{PAGES[page]}")
        user.get_log("browser")  # has the status 404
    view.open(f"{address}{PAGES[page]}")
    view.save(page, tmp_path)
    if page == "refused":
        user.get_log("browser")
    view.assert_focus_visible(1)
    view.assert_readable(address)


def test_the_list_begins_with_what_needs_attention(user: Any, address: str) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        running = session.query(DagRun).filter(DagRun.run_id == RUN_IDS[3]).one()
        running.run_after = NOON - timedelta(days=9)
    user.get(address)
    first = user.find_element(By.CSS_SELECTOR, "main section")
    assert first.find_element(By.TAG_NAME, "h2").text == "Needs attention"
    assert "ran out of GPU memory" in first.text


def test_selected_runs_are_compared(user: Any, address: str) -> None:
    user.get(f"{address}{PAGES['pipeline']}")
    for run_id in RUN_IDS[:2]:
        user.find_element(By.CSS_SELECTOR, f"input[value='{run_id}']").click()
    user.find_element(By.CSS_SELECTOR, "form button").click()
    WebDriverWait(user, 30).until(expected.presence_of_element_located((By.ID, "curves")))
    rows = [row.text for row in user.find_elements(By.CSS_SELECTOR, "#options tbody tr")]
    assert rows == ["train recipe_params.learning_rate 0.02 0.01"], "the newest run is first"
    assert "0.9947 (0.9833 to 1)" in user.find_element(By.ID, "metrics").text
    assert len(user.find_elements(By.CSS_SELECTOR, "#curves .chart")) == 4


def test_models_are_sorted_filtered_and_compared(user: Any, address: str) -> None:
    user.get(f"{address}{PAGES['models']}")

    def rates() -> list[str]:
        column = [head.get_attribute("data-column") for head in user.find_elements(By.CSS_SELECTOR, "thead > tr > *")]
        number = column.index("setting learning_rate") + 1
        shown = user.find_elements(By.CSS_SELECTOR, f"tbody td:nth-child({number})")
        return [cell.text for cell in shown if cell.is_displayed()]

    sort = user.find_element(By.CSS_SELECTOR, "[data-column='setting learning_rate'] button")
    newest_first = rates()
    assert sorted(newest_first) == ["0.01", "0.02"]
    sort.click()
    assert rates() == ["0.02", "0.01"]
    sort.click()
    assert rates() == ["0.01", "0.02"]
    user.find_element(By.CSS_SELECTOR, "[type=search]").send_keys("train 0.02", Keys.ENTER)
    assert rates() == ["0.02"] and user.find_element(By.CSS_SELECTOR, "[data-count]").text == "1"
    user.find_element(By.CSS_SELECTOR, "[type=search]").clear()
    user.find_element(By.CSS_SELECTOR, "[type=search]").send_keys(" ")
    user.find_element(By.CSS_SELECTOR, "details.columns summary").click()
    user.find_element(By.CSS_SELECTOR, "details.columns [value='setting learning_rate']").click()
    assert rates() == []
    for box in user.find_elements(By.CSS_SELECTOR, "tbody [type=checkbox]"):
        box.click()
    user.find_element(By.CSS_SELECTOR, "button[form]").click()
    WebDriverWait(user, 30).until(expected.presence_of_element_located((By.ID, "curves")))


def test_a_running_task_is_updated_and_its_charts_stay(user: Any, address: str) -> None:
    View(user, "light", 1280).open(f"{address}{PAGES['running']}")
    user.execute_script("document.querySelector('canvas').mark = 'the same chart'")
    root = json.loads(os.environ["AIRFLOW_CONN_TRAINYARD_DEFAULT"])["extra"]["storage"]
    directory = run_directory(root, DAG["dag_id"], RUN_IDS[3])
    key = TaskKey(dag_id=DAG["dag_id"], run_id=RUN_IDS[3], task_id="train", directory=directory)
    worker = WorkerProgress(rank=0, host="node0", phase="backward", epoch=8, step=18)
    GroupProgress(task_key=key, at=NOON.timestamp(), workers=(worker,)).save()
    row = (By.CSS_SELECTOR, ".running tbody tr")
    WebDriverWait(user, 60).until(expected.text_to_be_present_in_element(row, "0 node0 8 18 backward"))
    assert user.execute_script("return document.querySelector('canvas').mark") == "the same chart"


def test_a_report_has_an_origin_of_its_own(user: Any, address: str) -> None:
    user.get(f"{address}{PAGES['report']}")
    assert user.execute_script("return [self.origin, echarts !== undefined]") == ["null", True]
    user.get(f"{address}{PAGES['report']}#theme=dark")
    user.refresh()
    assert user.execute_script("return document.documentElement.style.colorScheme") == "dark"


def test_the_pages_have_the_theme_that_airflow_stored(user: Any, address: str) -> None:
    View(user, "light", 1280).open(address)
    user.execute_script("localStorage.setItem('theme', 'dark')")
    user.refresh()
    assert user.execute_script("return document.documentElement.style.colorScheme") == "dark"
    user.execute_script("localStorage.removeItem('theme')")
