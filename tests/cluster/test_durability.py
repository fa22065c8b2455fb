"""One application a task, whatever dies; the ResourceManager is the witness."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from airflow.sdk import DAG

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import applications
from trainyard.backends import processes
from trainyard.backends.yarn import YarnBackend
from trainyard.connections import Settings
from trainyard.contract import record, storage
from trainyard.contract.errors import TrainyardError
from trainyard.contract.record import RunRecord
from trainyard.contract.spec import Place
from trainyard.operators import ExportOperator
from trainyard.plan import Plan
from trainyard.yarn.trigger import ApplicationTrigger

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1200)]

ROWS = "def rows(spark, source): return spark.range(500)"
STUCK = """
    import time

    def rows(spark, source):
        time.sleep(3600)
"""
Planned = Callable[[str], Plan]


@pytest.fixture
def planned(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """Plans an export whose `prepare` is the source code given, and writes its spec."""
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    package = tmp_path / "dags" / "toy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(package / "dag.py")
    (tmp_path / "source.json").write_text('{"x": 1.5}\n')
    root = storage.join(cluster.storage, tmp_path.name)
    place = Place(dag_id="toy", run_id="r1", task_id="export", directory=storage.join(root, "runs/toy/r1"))

    def plan(prepare: str) -> Plan:
        (package / "prepare.py").write_text(textwrap.dedent(prepare))
        operator = ExportOperator(
            task_id="export", dag=dag, prepare="toy.prepare:rows", format="json", batches="batches",
            source=(tmp_path / "source.json").as_uri(),
        )  # fmt: skip
        made = operator.plan(place, Settings(storage=root))
        storage.replace(made.spec_uri, operator.SPEC.model_validate(made.spec).to_json().encode())
        return made

    return plan


def event(trigger: ApplicationTrigger) -> dict[str, object]:
    """What the trigger says when it fires."""

    async def first() -> dict[str, object]:
        async for fired in trigger.run():
            return dict(fired.payload)
        raise AssertionError("the trigger ended without an event")

    return asyncio.run(first())


def finished(plan: Plan) -> RunRecord:
    backend = YarnBackend(plan)
    found = backend.run(print)
    return found if isinstance(found, RunRecord) else backend.collect(event(found))


def wait_for(condition: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.2)


def test_a_task_that_starts_again_takes_the_result_that_is_there(planned: Planned, cluster: Cluster) -> None:
    plan = planned(ROWS)
    first = finished(plan)
    assert (first.status, first.output["rows"]) == ("succeeded", 500)
    assert finished(plan) == first
    assert [app["finalStatus"] for app in applications(cluster, plan.tag)] == ["SUCCEEDED"]
    record.take(first)
    again = finished(plan)
    assert again.application != first.application, "a task that succeeded and is cleared is done anew"
    assert [app["finalStatus"] for app in applications(cluster, plan.tag)] == ["SUCCEEDED", "SUCCEEDED"]


WORKER = """
import pathlib, pickle, sys
from trainyard.backends.yarn import YarnBackend
YarnBackend(pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())).run(print)
"""


@pytest.mark.parametrize("instant", ["during spark-submit", "after it"])
def test_a_worker_killed_while_it_submits_leaves_one_application(
    planned: Planned, cluster: Cluster, tmp_path: Path, instant: str
) -> None:
    plan = planned(ROWS)
    (tmp_path / "plan").write_bytes(pickle.dumps(plan))
    environment = os.environ | {"PYTHONPATH": "plugins"}
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path / "plan")], env=environment)
    if instant == "during spark-submit":
        wait_for(lambda: processes.tagged(plan.tag))
    else:
        wait_for(lambda: applications(cluster, plan.tag))
    worker.kill()
    worker.wait()
    assert finished(plan).status == "succeeded"
    assert [app["finalStatus"] for app in applications(cluster, plan.tag)].count("SUCCEEDED") == 1
    assert processes.tagged(plan.tag) == []


def test_killing_the_task_ends_application_and_containers(planned: Planned, cluster: Cluster) -> None:
    plan = planned(STUCK)
    backend = YarnBackend(plan)
    trigger = backend.run(print)
    assert isinstance(trigger, ApplicationTrigger)
    wait_for(lambda: applications(cluster, plan.tag)[0]["state"] == "RUNNING")
    asyncio.run(trigger.on_kill())
    assert event(trigger) == {"application": trigger.application}
    assert [app["finalStatus"] for app in applications(cluster, plan.tag)] == ["KILLED"]
    with pytest.raises(TrainyardError, match=r"ended KILLED/KILLED before its driver wrote a record"):
        backend.collect({"application": trigger.application})


def test_what_user_code_raises_is_the_reason(planned: Planned) -> None:
    found = finished(planned("def rows(spark, source): raise ValueError('no column y')"))
    assert found.status == "failed" and "no column y" in str(found.error)


def test_a_trigger_survives_the_trip_to_the_triggerer() -> None:
    trigger = ApplicationTrigger("application_1_0001", "tag", poll=1.0, patience=2.0)
    path, fields = trigger.serialize()
    assert path == "trainyard.yarn.trigger.ApplicationTrigger"
    assert json.loads(json.dumps(fields)) == fields
    assert ApplicationTrigger(**fields).serialize() == trigger.serialize()
