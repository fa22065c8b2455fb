"""One application a task, whatever dies; the ResourceManager is the witness."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import applications
from tests.cluster.jobs import Exports, event, finished, wait_for
from trainyard.backends import processes
from trainyard.backends.yarn import YarnBackend
from trainyard.errors import TrainyardError
from trainyard.planning.plan import Plan
from trainyard.schemas import run_record
from trainyard.triggers.application import ApplicationTrigger

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1200)]

STUCK = """
    import time

    def rows(spark, source):
        time.sleep(3600)
"""


def at(plan: Plan, **place: int) -> Plan:
    """`plan` in another try."""
    return replace(plan, task_key=plan.task_key.model_copy(update=place))


def test_a_task_that_starts_again_takes_the_result_that_is_there(exports: Exports, cluster: Cluster) -> None:
    plan = exports.plan()
    first = finished(plan)
    assert (first.status, first.output["rows"]) == ("succeeded", 500)
    assert finished(plan) == first
    assert [app["finalStatus"] for app in applications(cluster, plan.tag)] == ["SUCCEEDED"]
    run_record.mark_used(plan.task_key, first)
    assert finished(at(plan, try_number=2)) == first, "the try that took it died before Airflow knew"
    again = finished(at(plan, try_number=2, first_try=2))
    assert again.application != first.application, "a task that succeeded and is cleared is done anew"
    assert [app["finalStatus"] for app in applications(cluster, plan.tag)] == ["SUCCEEDED", "SUCCEEDED"]


WORKER = """
import pathlib, pickle, sys
from trainyard.backends.yarn import YarnBackend
YarnBackend(pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())).run(print)
"""


@pytest.mark.parametrize("instant", ["during spark-submit", "after it"])
def test_a_worker_killed_while_it_submits_leaves_one_application(
    exports: Exports, cluster: Cluster, tmp_path: Path, instant: str
) -> None:
    plan = exports.plan()
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


def test_killing_the_task_ends_application_and_containers(exports: Exports, cluster: Cluster) -> None:
    plan = exports.plan(STUCK)
    backend = YarnBackend(plan)
    trigger = backend.run(print)
    assert isinstance(trigger, ApplicationTrigger)
    wait_for(lambda: applications(cluster, plan.tag)[0]["state"] == "RUNNING")
    asyncio.run(trigger.on_kill())
    assert event(trigger) == {"application": trigger.application, "reattached": False}
    assert [app["finalStatus"] for app in applications(cluster, plan.tag)] == ["KILLED"]
    with pytest.raises(TrainyardError, match=r"ended KILLED/KILLED before its driver wrote a record"):
        backend.collect({"application": trigger.application}, print)


def test_a_try_that_found_what_a_cleared_one_ends_does_it_anew(exports: Exports, cluster: Cluster) -> None:
    plan = exports.plan(STUCK)
    cleared = YarnBackend(plan).run(print)
    backend = YarnBackend(plan)
    found = backend.run(print)
    assert isinstance(cleared, ApplicationTrigger) and isinstance(found, ApplicationTrigger)
    assert found.application == cleared.application
    asyncio.run(cleared.on_kill())
    anew = backend.collect(event(found), print)
    assert isinstance(anew, ApplicationTrigger) and anew.application != cleared.application
    asyncio.run(anew.on_kill())
    event(anew)
    assert [app["state"] for app in applications(cluster, plan.tag)] == ["KILLED", "KILLED"]


def test_what_user_code_raises_is_the_reason(exports: Exports) -> None:
    found = finished(exports.plan("def rows(spark, source): raise ValueError('no column y')"))
    assert found.status == "failed" and "no column y" in str(found.error)


def test_a_trigger_survives_the_trip_to_the_triggerer() -> None:
    trigger = ApplicationTrigger("application_1_0001", "tag", poll=1.0, patience=2.0)
    path, fields = trigger.serialize()
    assert path == "trainyard.yarn.trigger.ApplicationTrigger"
    assert json.loads(json.dumps(fields)) == fields
    assert ApplicationTrigger(**fields).serialize() == trigger.serialize()
