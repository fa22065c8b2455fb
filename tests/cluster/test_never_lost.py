"""A whole Airflow on the cluster: gangs that compete, processes that die, tasks that are marked and cleared."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import requests

from stack.hadoop.cluster import Cluster
from tests.cluster.airflow import Airflow, running
from tests.cluster.conftest import applications
from tests.cluster.jobs import wait_for
from trainyard.backends import processes
from trainyard.planning.paths import application_tag, run_directory
from trainyard.schemas.specs.task_key import TaskKey

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def airflow(
    cluster: Cluster, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Airflow]:
    with running(environment, tmp_path_factory.mktemp("whole-airflow")) as started:
        pool = {"name": "gpu", "slots": 4, "include_deferred": True}
        started.api("POST", "pools", **pool)
        for dag in ("compete", "follow", "stuck", "early", "late", "untold"):
            wait_for(lambda dag=dag: started.knows(dag))
        yield started


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    file: Path = tmp_path_factory.mktemp("source") / "source.json"
    file.write_text('{"x": 1.5}\n')
    return file.as_uri()


def named(cluster: Cluster, name: str) -> list[dict[str, object]]:
    return sorted((app for app in applications(cluster) if app["name"] == name), key=lambda app: str(app["id"]))


def states(cluster: Cluster, name: str) -> list[object]:
    return [app["state"] for app in named(cluster, name)]


@contextmanager
def submitting(cluster: Cluster, dag: str, run: str, task: str) -> Iterator[None]:
    """The submission of a task, held where YARN knows the application and spark-submit has not ended."""
    directory = run_directory(cluster.storage, dag, run)
    tag = application_tag(TaskKey(dag_id=dag, run_id=run, task_id=task, directory=directory))

    def tell(number: signal.Signals) -> None:
        for process in processes.tagged(tag):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def submitted() -> bool:
        """Asked while it stands still; between two questions it goes on for a moment."""
        tell(signal.SIGCONT)
        time.sleep(0.05)
        tell(signal.SIGSTOP)
        return bool(states(cluster, f"{dag}.{task}"))

    wait_for(lambda: processes.tagged(tag), 600)
    try:
        wait_for(submitted, 600)
        assert processes.tagged(tag), "it has ended already"
        yield
    finally:
        tell(signal.SIGCONT)


def followed(airflow: Airflow) -> list[str]:
    """The models that the scheduler has run `follow` for, by their weights."""
    ended = [run for run in airflow.runs("follow") if airflow.state("follow", run) == "success"]
    return [weights for run in ended for weights in airflow.returned("follow", run, "models")]


def test_gangs_that_fit_one_at_a_time_run_so_whatever_dies_and_their_models_start_other_dags(
    airflow: Airflow, cluster: Cluster, source: str
) -> None:
    runs = ("first", "second")
    for run in runs:
        airflow.trigger("compete", run, source=source)

    wait_for(lambda: states(cluster, "compete.export"), 600)
    airflow.kill("scheduler")  # and its workers, one of which has just submitted
    airflow.start("scheduler")

    wait_for(lambda: "RUNNING" in states(cluster, "compete.train"), 900)
    airflow.kill("triggerer")
    airflow.start("triggerer")

    wait_for(lambda: all(airflow.state("compete", run) in ("success", "failed") for run in runs), 1500)
    assert {run: airflow.state("compete", run) for run in runs} == dict.fromkeys(runs, "success")
    for stage in ("export", "train"):
        ended = named(cluster, f"compete.{stage}")
        found = [app["finalStatus"] for app in ended]
        assert found == ["SUCCEEDED", "SUCCEEDED"], f"one application a task; {airflow.said('compete', stage)}"
    gangs = named(cluster, "compete.train")
    first, second = gangs
    assert int(str(second["startedTime"])) >= int(str(first["finishedTime"])), "no gang held half of the GPUs"

    for run in runs:
        links = airflow.api("GET", f"dags/compete/dagRuns/{run}/taskInstances/train/links")["extra_links"]
        page = requests.get(links["YARN application"], timeout=30)
        assert page.ok and any(str(app["id"]) in page.url for app in gangs)
        assert "/containerlogs/container_" in links["Driver log"] and "/proxy/application_" in links["Spark UI"]

    trained = [airflow.returned("compete", run, "train")["weights_sha256"] for run in runs]
    wait_for(lambda: sorted(followed(airflow)) == sorted(trained))


def test_marking_and_clearing_a_task_ends_its_application(airflow: Airflow, cluster: Cluster, source: str) -> None:
    airflow.trigger("stuck", "r", source=source)
    wait_for(lambda: states(cluster, "stuck.export") == ["RUNNING"], 600)
    wait_for(lambda: airflow.task("stuck", "r", "export") == "deferred")
    airflow.api(
        "POST", "dags/stuck/clearTaskInstances", dag_run_id="r", task_ids=["export"], dry_run=False, only_failed=False
    )
    wait_for(lambda: states(cluster, "stuck.export") == ["KILLED", "RUNNING"], 600)
    wait_for(lambda: airflow.task("stuck", "r", "export") == "deferred")
    airflow.api("PATCH", "dags/stuck/dagRuns/r/taskInstances/export", new_state="failed")
    wait_for(lambda: states(cluster, "stuck.export") == ["KILLED", "KILLED"])
    assert airflow.task("stuck", "r", "export") == "failed"


def test_marking_a_task_while_it_submits_ends_its_application(airflow: Airflow, cluster: Cluster, source: str) -> None:
    airflow.trigger("early", "r", source=source)
    with submitting(cluster, "early", "r", "export"):
        airflow.api("PATCH", "dags/early/dagRuns/r/taskInstances/export", new_state="failed")
    wait_for(lambda: states(cluster, "early.export") == ["KILLED"])
    assert airflow.task("early", "r", "export") == "failed"


def test_a_worker_that_dies_with_the_result_leaves_it_to_the_next_try_and_not_to_a_cleared_task(
    airflow: Airflow, cluster: Cluster, source: str
) -> None:
    def export() -> tuple[str, int]:
        found = airflow.api("GET", "dags/untold/dagRuns/r/taskInstances/export")
        return str(found["state"]), int(found["try_number"])

    airflow.trigger("untold", "r", source=source)
    wait_for(lambda: export() == ("success", 2), 600)
    assert states(cluster, "untold.export") == ["FINISHED"]
    airflow.api(
        "POST", "dags/untold/clearTaskInstances", dag_run_id="r", task_ids=["export"], dry_run=False, only_failed=False
    )
    wait_for(lambda: export() == ("success", 3), 600)
    assert states(cluster, "untold.export") == ["FINISHED", "FINISHED"]


def test_a_task_that_waits_too_long_fails_and_its_application_ends(
    airflow: Airflow, cluster: Cluster, source: str
) -> None:
    airflow.trigger("late", "r", source=source)
    wait_for(lambda: states(cluster, "late.export") == ["RUNNING"], 600)
    wait_for(lambda: airflow.task("late", "r", "export") == "failed", 600)
    wait_for(lambda: states(cluster, "late.export") == ["KILLED"])
