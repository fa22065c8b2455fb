"""Containers that YARN ends with a grace period, or that are silent, during a training."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest
from airflow.sdk import DAG

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import ROOT
from tests.cluster.jobs import Exports, build_plan, run_to_end
from tests.cluster.recovery.faults import EXECUTOR, find_leftovers, find_processes, run_with_fault
from trainyard.files import storage
from trainyard.operators import TrainOperator
from trainyard.planning.placement import Placement
from trainyard.planning.plan import Plan
from trainyard.planning.sizing import Memory
from trainyard.schemas.runs import events
from trainyard.schemas.runs.worker_progress import progress_uri

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(1200)]

GRACE_SECONDS = 10
"""`yarn.nodemanager.sleep-delay-before-sigkill.ms`; the default are 0.25 s."""
ROWS = """
    from pyspark.sql import functions as F

    def rows(spark, source):
        label = (F.col("id") % 3).alias("label")
        return spark.range(600).select(F.array(F.col("id") / 600.0, F.lit(1.0)).cast("array<float>").alias("x"), label)
"""


Stop = Callable[[int], None]


def terminate(container: int) -> None:
    """End a container as a NodeManager does."""
    os.killpg(container, signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    with suppress(ProcessLookupError):  # it has ended before
        os.killpg(container, signal.SIGKILL)


def freeze(container: int) -> None:
    """Stop all processes of a container, so that none of its connections ends, as on a node that is cut off."""
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.Error):
            if os.getsid(process.pid) == container:
                process.suspend()


def train(exports: Exports, cluster: Cluster, stop: Stop) -> tuple[Plan, str]:
    """Train with a container that is stopped meanwhile; return the plan, and why its group was restarted."""
    dataset = exports.plan(ROWS)
    exported = run_to_end(dataset)
    assert exported.status == "succeeded", exported.error
    dag = DAG("stopped", schedule=None)
    dag.fileloc = str(ROOT / "tests" / "cluster" / "dags" / "slow" / "dag.py")
    operator = TrainOperator(
        task_id="train", dag=dag, recipe="slow.recipe:network", dataset=str(dataset.job.spec["dataset"]), model="model",
        workers=2, epochs=1, batch_size=5, memory=Memory(heap="512m", native="2g"),
        placement=Placement(queue="train", node_label="gpu"),
    )  # fmt: skip
    plan = build_plan(operator, exports.root)
    progress = progress_uri(plan.job.task_key)

    def stop_once_it_trains(_: Cluster, application: str) -> bool:
        if not (storage.exists(progress) and b'"forward"' in storage.read(progress)):
            return False
        stop(os.getsid(find_processes(application, EXECUTOR)[-1].pid))
        return True

    record = run_with_fault(plan, cluster, stop_once_it_trains)
    assert record.output["restarts"] == 1
    [restart] = [event for event in events.read(plan.job.task_key.directory) if event["name"] == "restart"]
    return plan, str(restart["args"]["reason"])


def test_a_worker_group_whose_container_is_preempted_saves_its_state_and_resumes(
    exports: Exports, configured: Cluster
) -> None:
    _, reason = train(exports, configured, terminate)
    assert "received SIGTERM" in reason and "The state is saved" in reason


@pytest.mark.faults
def test_a_worker_group_with_a_container_that_is_silent_restarts_without_it(
    exports: Exports, configured: Cluster
) -> None:
    plan, reason = train(exports, configured, freeze)
    assert reason.startswith("no heartbeat arrived for 22 s from rank ")
    assert find_leftovers(plan, configured) == []
