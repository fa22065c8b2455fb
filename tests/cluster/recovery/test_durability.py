"""At most one application does the work of a task when processes are killed, as the ResourceManager reports."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import list_applications
from tests.cluster.jobs import Exports, build_backend, get_event, run_to_end, wait_for
from trainyard.backends import processes
from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.planning.plan import Plan
from trainyard.schemas.runs import run_record
from trainyard.schemas.specs.export import ExportSpec
from trainyard.triggers.application import ApplicationTrigger

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1200)]

STUCK = """
    import time

    def rows(spark, source):
        time.sleep(3600)
"""


def change_attempt(plan: Plan, **fields: int) -> Plan:
    """Return the plan of another attempt, and write its spec."""
    task_key = plan.job.task_key.model_copy(update=fields)
    later = plan.with_job(task_key=task_key, spec={**plan.job.spec, "task_key": task_key})
    storage.replace(later.attempt_uri, ExportSpec.model_validate(later.job.spec).to_json().encode())
    return later


@pytest.mark.faults
def test_a_restarted_task_reuses_an_existing_result(exports: Exports, cluster: Cluster) -> None:
    plan = exports.plan()
    first = run_to_end(plan)
    assert (first.status, first.output["rows"]) == ("succeeded", 500)
    assert run_to_end(plan) == first
    assert [app["finalStatus"] for app in list_applications(cluster, plan.tag)] == ["SUCCEEDED"]
    run_record.mark_used(plan.job.task_key, first)
    assert run_to_end(change_attempt(plan, try_number=2)) == first, (
        "the attempt was killed before Airflow stored its result"
    )
    rerun = run_to_end(change_attempt(plan, try_number=2, first_try=2))
    assert rerun.application != first.application, "a task that succeeded and is cleared runs again"
    assert [app["finalStatus"] for app in list_applications(cluster, plan.tag)] == ["SUCCEEDED", "SUCCEEDED"]


WORKER = """
import pathlib, pickle, sys
from tests.cluster.jobs import build_backend
build_backend(pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())).run(print)
"""


def test_an_airflow_worker_killed_during_spark_submit_leaves_one_application(
    exports: Exports, cluster: Cluster, tmp_path: Path
) -> None:
    plan = exports.plan()
    (tmp_path / "plan").write_bytes(pickle.dumps(plan))
    environment = os.environ | {"PYTHONPATH": "plugins:."}
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path / "plan")], env=environment)
    wait_for(lambda: processes.find_tagged(plan.tag))
    worker.kill()
    worker.wait()
    assert run_to_end(plan).status == "succeeded"
    assert [app["finalStatus"] for app in list_applications(cluster, plan.tag)].count("SUCCEEDED") == 1
    assert processes.find_tagged(plan.tag) == []


@pytest.mark.faults
def test_an_attempt_reattached_to_an_application_that_a_cleared_one_kills_submits_again(
    exports: Exports, cluster: Cluster
) -> None:
    plan = exports.plan(STUCK)
    cleared = build_backend(plan).run(print)
    backend = build_backend(plan)
    reattached = backend.run(print)
    assert isinstance(cleared, ApplicationTrigger) and isinstance(reattached, ApplicationTrigger)
    assert reattached.application == cleared.application
    asyncio.run(cleared.on_kill())
    submitted = backend.collect(get_event(reattached), print)
    assert isinstance(submitted, ApplicationTrigger) and submitted.application != cleared.application
    wait_for(lambda: "RUNNING" in [app["state"] for app in list_applications(cluster, plan.tag)])
    asyncio.run(submitted.on_kill())
    assert get_event(submitted) == {"application": submitted.application, "reattached": False}
    assert [app["finalStatus"] for app in list_applications(cluster, plan.tag)] == ["KILLED", "KILLED"]
    with pytest.raises(TrainyardError, match=r"ended KILLED/KILLED before its driver wrote a run record"):
        backend.collect({"application": submitted.application}, print)


def test_a_trigger_is_serialized_and_restored() -> None:
    trigger = ApplicationTrigger("application_1_0001", "tag", poll=1.0, patience=2.0)
    path, fields = trigger.serialize()
    assert path == "trainyard.triggers.application.ApplicationTrigger"
    assert json.loads(json.dumps(fields)) == fields
    assert ApplicationTrigger(**fields).serialize() == trigger.serialize()
