"""Kill tasks at random moments of planning and submission, and fail over a pair of ResourceManagers: `make faults`.

A trial is clean if no application of the task runs in the end, or exactly one has succeeded where nothing was killed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stack.hadoop.cluster import Cluster
from stack.hadoop.config import STANDBY_RESOURCE_MANAGER
from tests.cluster.conftest import list_applications
from tests.cluster.jobs import Exports, build_backend, get_event, wait_for
from tests.cluster.recovery.airflow import Airflow, run_airflow
from tests.cluster.recovery.test_durability import STUCK
from trainyard.backends import processes
from trainyard.files import uris
from trainyard.planning.paths import application_tag, run_directory
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.triggers.application import ApplicationTrigger
from trainyard.yarn.resource_manager import LIVE

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1200)]

TRIALS = int(os.environ.get("TRIALS", "5"))
SUBMISSION_SECONDS = 12.0
"""At least what planning and submission take here; later moments hit a task that waits."""
AIRFLOW_SECONDS = 5.0
"""What Airflow leaves a task between SIGTERM and SIGKILL."""

WORKER = """
import pathlib, signal, sys
from tests.cluster.jobs import Exports
from trainyard.backends.yarn import YarnBackend
from trainyard.planning.paths import run_directory
from trainyard.schemas.specs.task_key import TaskKey

folder, root, prepare = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
key = TaskKey(dag_id="toy", run_id="r1", task_id="export", directory=run_directory(root, "toy", "r1"))
backend = YarnBackend("ExportOperator 'export'", key, root, lambda: Exports(folder, root).plan(prepare))
signal.signal(signal.SIGTERM, lambda number, frame: backend.kill())  # as Airflow's task runner
print("ready", flush=True)
print(backend.run(print).application, flush=True)
"""


def list_live(cluster: Cluster, tag: str) -> list[object]:
    return [app["id"] for app in list_applications(cluster, tag) if app["state"] in LIVE]


def assert_nothing_runs(cluster: Cluster, tag: str) -> None:
    wait_for(lambda: not processes.find_tagged(tag), 60)
    wait_for(lambda: not list_live(cluster, tag), 60)


@pytest.mark.parametrize("trial", range(4 * TRIALS))
def test_a_worker_that_is_killed_at_a_random_moment_leaves_no_application(
    configured: Cluster, tmp_path: Path, trial: int
) -> None:
    moment = random.Random(trial).uniform(0, SUBMISSION_SECONDS)
    root = uris.join(configured.storage, tmp_path.name)
    key = TaskKey(dag_id="toy", run_id="r1", task_id="export", directory=run_directory(root, "toy", "r1"))
    environment = os.environ | {"PYTHONPATH": "plugins:."}
    command = [sys.executable, "-c", WORKER, str(tmp_path), root, STUCK]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout and worker.stdout.readline() == "ready\n"
        with suppress(subprocess.TimeoutExpired):
            worker.wait(moment)
        worker.send_signal(signal.SIGTERM)
        try:
            worker.wait(AIRFLOW_SECONDS)
        except subprocess.TimeoutExpired:
            worker.kill()
        printed = worker.stdout.read()
    if printed.splitlines()[-1:] and printed.splitlines()[-1].startswith("application_"):
        asyncio.run(ApplicationTrigger(printed.splitlines()[-1], application_tag(key)).on_kill())
    assert_nothing_runs(configured, application_tag(key))


@pytest.fixture(scope="module")
def airflow(
    cluster: Cluster, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Airflow]:
    with run_airflow(environment, tmp_path_factory.mktemp("airflow")) as airflow:
        wait_for(lambda: airflow.has_dag("early"))
        yield airflow


@pytest.mark.parametrize("trial", range(4 * TRIALS))
def test_a_task_that_is_marked_at_a_random_moment_leaves_no_application(
    airflow: Airflow, cluster: Cluster, tmp_path: Path, trial: int
) -> None:
    moment = random.Random(trial).uniform(0, SUBMISSION_SECONDS)
    source, run = tmp_path / "source.json", f"trial-{trial}"
    source.write_text('{"x": 1.5}\n')
    key = TaskKey(dag_id="early", run_id=run, task_id="export", directory=run_directory(cluster.storage, "early", run))
    airflow.trigger("early", run, source=source.as_uri())
    wait_for(lambda: airflow.get_task_state("early", run, "export") in ("running", "deferred"))
    time.sleep(moment)  # the moment is what is tried
    airflow.api("PATCH", f"dags/early/dagRuns/{run}/taskInstances/export", new_state="failed")
    wait_for(lambda: airflow.get_state("early", run) == "failed")
    assert_nothing_runs(cluster, application_tag(key))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a pair of ResourceManagers."""
    with Cluster.launch(tmp_path_factory.mktemp("pair"), standbys=[STANDBY_RESOURCE_MANAGER]) as cluster:
        yield cluster


@pytest.fixture
def exports(pair: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Exports:
    for name, value in pair.build_environment().items():
        monkeypatch.setenv(name, value)
    return Exports(tmp_path, uris.join(pair.storage, tmp_path.name))


def fail_over(cluster: Cluster, trial: int) -> None:
    """Kill the active ResourceManager, make the other one active, and start the first one again, as a standby."""
    names = ("resourcemanager", "resourcemanager2")
    active, other = names if trial % 2 == 0 else names[::-1]
    cluster.kill(active)
    cluster.activate(other)
    cluster.start()


@pytest.mark.parametrize("trial", range(2 * TRIALS))
def test_an_application_survives_a_failover_and_its_kill_is_not_lost_in_one(
    exports: Exports, pair: Cluster, trial: int
) -> None:
    plan = exports.plan(STUCK)
    trigger = build_backend(plan).run(print)
    assert isinstance(trigger, ApplicationTrigger)
    wait_for(lambda: [app["state"] for app in list_applications(pair, plan.tag)] == ["RUNNING"])
    failover = threading.Thread(target=fail_over, args=(pair, trial))
    failover.start()
    try:
        wait_for(lambda: pair.get_pid("resourcemanager" if trial % 2 == 0 else "resourcemanager2") is None)
        asyncio.run(trigger.on_kill())
    finally:
        failover.join()
    pair.wait()
    assert get_event(trigger)["application"] == trigger.application
    assert_nothing_runs(pair, plan.tag)
    assert [app["state"] for app in list_applications(pair, plan.tag)] == ["KILLED"]
