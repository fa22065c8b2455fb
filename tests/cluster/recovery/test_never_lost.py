"""An Airflow on the cluster, with competing worker groups, killed processes, and marked and cleared tasks."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import requests
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import list_applications
from tests.cluster.jobs import wait_for
from tests.cluster.recovery.airflow import Airflow, run_airflow
from trainyard.backends import processes
from trainyard.files import storage
from trainyard.planning.paths import application_tag, run_directory
from trainyard.schemas.specs.task_key import TaskKey

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def airflow(
    cluster: Cluster, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Airflow]:
    with run_airflow(environment, tmp_path_factory.mktemp("airflow")) as airflow:
        pool = {"name": "gpu", "slots": 4, "include_deferred": True}
        airflow.api("POST", "pools", **pool)
        for dag in ("compete", "follow", "learn", "stuck", "early", "late", "untold", "watch", "trainyard_maintenance"):
            wait_for(lambda dag=dag: airflow.has_dag(dag))
        yield airflow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    file: Path = tmp_path_factory.mktemp("source") / "source.json"
    file.write_text('{"x": 1.5}\n')
    return file.as_uri()


def list_named(cluster: Cluster, name: str) -> list[dict[str, object]]:
    return sorted((app for app in list_applications(cluster) if app["name"] == name), key=lambda app: str(app["id"]))


def list_states(cluster: Cluster, name: str) -> list[object]:
    return [app["state"] for app in list_named(cluster, name)]


@contextmanager
def pause_submission(cluster: Cluster, dag: str, run: str, task: str) -> Iterator[None]:
    """Pause the submission of a task when YARN has accepted the application and spark-submit has not ended."""
    directory = run_directory(cluster.storage, dag, run)
    tag = application_tag(TaskKey(dag_id=dag, run_id=run, task_id=task, directory=directory))

    def send(number: signal.Signals) -> None:
        for process in processes.find_tagged(tag):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def is_submitted() -> bool:
        """Let the submission run for a moment, pause it, and return whether YARN has the application."""
        send(signal.SIGCONT)
        time.sleep(0.05)
        send(signal.SIGSTOP)
        return bool(list_states(cluster, f"{dag}.{task}"))

    wait_for(lambda: processes.find_tagged(tag), 600)
    try:
        wait_for(is_submitted, 600)
        assert processes.find_tagged(tag), "spark-submit has ended already"
        yield
    finally:
        send(signal.SIGCONT)


def list_watched_versions(airflow: Airflow) -> list[int]:
    """Return the versions for which the scheduler has run `watch`."""
    ended = [run for run in airflow.list_runs("watch") if airflow.get_state("watch", run) == "success"]
    return [version for run in ended for version in airflow.get_result("watch", run, "versions")]


@pytest.mark.full
def test_each_new_version_of_a_dataset_starts_the_dag_that_watches_it(airflow: Airflow, configured: Cluster) -> None:
    for number in (1, 2):
        storage.create(f"{configured.storage}/watched/versions/{number:08d}.json", b"{}")
        wait_for(lambda number=number: list_watched_versions(airflow).count(number) == 1)


def list_followed_models(airflow: Airflow) -> list[str]:
    """Return the weights of the models for which the scheduler has run `follow`."""
    ended = [run for run in airflow.list_runs("follow") if airflow.get_state("follow", run) == "success"]
    return [weights for run in ended for weights in airflow.get_result("follow", run, "models")]


@pytest.mark.faults
def test_worker_groups_that_fit_one_at_a_time_run_in_sequence_despite_killed_processes_and_trigger_other_dags(
    airflow: Airflow, cluster: Cluster, source: str
) -> None:
    runs = ("first", "second")
    for run in runs:
        airflow.trigger("compete", run, source=source)

    wait_for(lambda: list_states(cluster, "compete.export"), 600)
    airflow.kill("scheduler")  # and its Airflow workers, one of which has just submitted
    airflow.start("scheduler")

    wait_for(lambda: "RUNNING" in list_states(cluster, "compete.train"), 900)
    airflow.kill("triggerer")
    airflow.start("triggerer")

    wait_for(lambda: all(airflow.get_state("compete", run) in ("success", "failed") for run in runs), 1500)
    assert {run: airflow.get_state("compete", run) for run in runs} == dict.fromkeys(runs, "success")
    for stage in ("export", "train"):
        ended = list_named(cluster, f"compete.{stage}")
        statuses = [app["finalStatus"] for app in ended]
        assert statuses == ["SUCCEEDED", "SUCCEEDED"], airflow.read_logs("compete", stage)
    trainings = list_named(cluster, "compete.train")
    first, second = trainings
    assert int(str(second["startedTime"])) >= int(str(first["finishedTime"])), "the worker groups ran in sequence"

    for run in runs:
        links = airflow.api("GET", f"dags/compete/dagRuns/{run}/taskInstances/train/links")["extra_links"]
        page = requests.get(links["YARN application"], timeout=30)
        assert page.ok and any(str(app["id"]) in page.url for app in trainings)
        assert "/containerlogs/container_" in links["Driver log"] and "/proxy/application_" in links["Spark UI"]

    trained = [airflow.get_result("compete", run, "train")["weights_sha256"] for run in runs]
    wait_for(lambda: sorted(list_followed_models(airflow)) == sorted(trained))


@pytest.mark.full
def test_the_log_of_a_task_that_waits_shows_the_progress_of_its_training(
    airflow: Airflow, cluster: Cluster, source: str, browser: webdriver.Chrome
) -> None:
    if is_first := not list_named(cluster, "compete.export"):
        airflow.trigger("compete", "data", source=source)
    wait_for(lambda: find_dataset(airflow), 900)
    airflow.trigger("learn", "r", dataset=find_dataset(airflow))
    wait_for(lambda: airflow.get_task_state("learn", "r", "train") == "deferred", 600)
    browser.set_window_size(1300, 760)
    browser.get(f"http://127.0.0.1:{airflow.port}/dags/learn/runs/r/tasks/train")
    try:
        WebDriverWait(browser, 600, ignored_exceptions=[StaleElementReferenceException]).until(
            lambda page: re.search(r"epoch \d+/100000 step .* rows/s", page.find_element(By.TAG_NAME, "body").text)
        )
        if folder := os.environ.get("TRAINYARD_SCREENSHOTS"):
            assert browser.save_screenshot(str(Path(folder) / "progress.png"))
    finally:
        airflow.api("PATCH", "dags/learn/dagRuns/r/taskInstances/train", new_state="failed")
    wait_for(lambda: list_states(cluster, "learn.train") == ["KILLED"])
    wait_for(lambda: not is_first or airflow.get_state("compete", "data") == "success", 900)


def find_dataset(airflow: Airflow) -> str:
    """Return the dataset of a run of `compete`, "" while there is none."""
    for run in airflow.list_runs("compete"):
        if airflow.get_task_state("compete", run, "export") == "success":
            return str(airflow.get_result("compete", run, "export")["uri"])
    return ""


def test_marking_and_clearing_a_task_ends_its_application(airflow: Airflow, cluster: Cluster, source: str) -> None:
    airflow.trigger("stuck", "r", source=source)
    wait_for(lambda: list_states(cluster, "stuck.export") == ["RUNNING"], 600)
    wait_for(lambda: airflow.get_task_state("stuck", "r", "export") == "deferred")
    airflow.api(
        "POST", "dags/stuck/clearTaskInstances", dag_run_id="r", task_ids=["export"], dry_run=False, only_failed=False
    )
    wait_for(lambda: list_states(cluster, "stuck.export") == ["KILLED", "RUNNING"], 600)
    wait_for(lambda: airflow.get_task_state("stuck", "r", "export") == "deferred")
    airflow.api("PATCH", "dags/stuck/dagRuns/r/taskInstances/export", new_state="failed")
    wait_for(lambda: list_states(cluster, "stuck.export") == ["KILLED", "KILLED"])
    assert airflow.get_task_state("stuck", "r", "export") == "failed"


@pytest.mark.faults
def test_marking_a_task_while_it_submits_ends_its_application(airflow: Airflow, cluster: Cluster, source: str) -> None:
    airflow.trigger("early", "r", source=source)
    with pause_submission(cluster, "early", "r", "export"):
        airflow.api("PATCH", "dags/early/dagRuns/r/taskInstances/export", new_state="failed")
    wait_for(lambda: list_states(cluster, "early.export") == ["KILLED"])
    assert airflow.get_task_state("early", "r", "export") == "failed"


@pytest.mark.full
def test_the_result_of_a_killed_airflow_worker_is_reused_by_the_next_attempt_but_not_by_a_cleared_task(
    airflow: Airflow, cluster: Cluster, source: str
) -> None:
    def get_export() -> tuple[str, int]:
        instance = airflow.api("GET", "dags/untold/dagRuns/r/taskInstances/export")
        return str(instance["state"]), int(instance["try_number"])

    airflow.trigger("untold", "r", source=source)
    wait_for(lambda: get_export() == ("success", 2), 600)
    # A scheduler that is just ending the run overwrites that it is cleared.
    wait_for(lambda: airflow.get_state("untold", "r") == "success")
    assert list_states(cluster, "untold.export") == ["FINISHED"]
    airflow.api(
        "POST", "dags/untold/clearTaskInstances", dag_run_id="r", task_ids=["export"], dry_run=False, only_failed=False
    )
    wait_for(lambda: get_export() == ("success", 3), 600)
    assert list_states(cluster, "untold.export") == ["FINISHED", "FINISHED"]


@pytest.mark.faults
def test_a_task_beyond_its_timeout_fails_and_its_application_ends(
    airflow: Airflow, cluster: Cluster, source: str
) -> None:
    airflow.trigger("late", "r", source=source)
    wait_for(lambda: list_states(cluster, "late.export") == ["RUNNING"], 600)
    wait_for(lambda: airflow.get_task_state("late", "r", "export") == "failed", 600)
    wait_for(lambda: list_states(cluster, "late.export") == ["KILLED"])


def defer_without_triggerer(airflow: Airflow, cluster: Cluster, run: str, source: str) -> str:
    """Start a run of `stuck`, end the triggerer while the task waits for its application, and return that."""
    before = len(list_named(cluster, "stuck.export"))
    airflow.trigger("stuck", run, source=source)
    wait_for(lambda: airflow.get_task_state("stuck", run, "export") == "deferred", 600)
    wait_for(lambda: list_states(cluster, "stuck.export")[before:] == ["RUNNING"], 600)
    airflow.kill("triggerer")
    return str(list_named(cluster, "stuck.export")[-1]["id"])


def start_triggerer(airflow: Airflow) -> None:
    """Start a triggerer that takes the killed one for alive, so that it does not start triggers of that one."""
    airflow.start("triggerer", AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD="1200")
    wait_for(airflow.is_healthy)


@pytest.mark.faults
def test_marking_a_task_while_no_triggerer_runs_ends_its_application(
    airflow: Airflow, cluster: Cluster, source: str
) -> None:
    application = defer_without_triggerer(airflow, cluster, "marked", source)
    airflow.api("PATCH", "dags/stuck/dagRuns/marked/taskInstances/export", new_state="success")
    wait_for(lambda: list_states(cluster, "stuck.export")[-1] == "KILLED")
    assert list_named(cluster, "stuck.export")[-1]["id"] == application
    start_triggerer(airflow)


@pytest.mark.faults
def test_maintenance_ends_the_application_of_a_dag_that_was_deleted_while_no_triggerer_ran(
    airflow: Airflow, cluster: Cluster, source: str
) -> None:
    def get_newest() -> object:
        return list_states(cluster, "stuck.export")[-1]

    application = defer_without_triggerer(airflow, cluster, "deleted", source)
    airflow.kill("scheduler")  # Airflow's scheduler ends by itself if a run is deleted that it is looking at
    airflow.api("DELETE", "dags/stuck")
    airflow.start("scheduler")
    start_triggerer(airflow)
    assert get_newest() == "RUNNING", "no trigger has seen that the DAG was deleted"
    airflow.api("PATCH", "dags/trainyard_maintenance", is_paused=False)
    wait_for(lambda: get_newest() == "KILLED", 600)
    airflow.api("PATCH", "dags/trainyard_maintenance", is_paused=True)
    wait_for(lambda: list_reaped(airflow))
    assert list_reaped(airflow) == [application]


def list_reaped(airflow: Airflow) -> list[str]:
    """Return the applications that the maintenance DAG has ended; the clock may have started it a second time."""
    dag = "trainyard_maintenance"
    ended = [run for run in airflow.list_runs(dag) if airflow.get_state(dag, run) == "success"]
    return [application for run in ended for application in airflow.get_result(dag, run, "reap")]
