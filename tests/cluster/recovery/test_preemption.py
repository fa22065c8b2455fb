"""A container that YARN ends with a grace period saves the state of its worker group."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import pytest
from airflow.sdk import DAG

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import ROOT
from tests.cluster.jobs import Exports, build_plan, run_to_end
from tests.cluster.recovery.faults import EXECUTOR, find_processes, run_with_fault
from trainyard.files import storage
from trainyard.operators import TrainOperator
from trainyard.planning.placement import Placement
from trainyard.planning.sizing import Memory
from trainyard.schemas.runs import events

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(1200)]

GRACE_SECONDS = 10
"""`yarn.nodemanager.sleep-delay-before-sigkill.ms`; the default are 0.25 s."""
ROWS = """
    from pyspark.sql import functions as F

    def rows(spark, source):
        label = (F.col("id") % 3).alias("label")
        return spark.range(600).select(F.array(F.col("id") / 600.0, F.lit(1.0)).cast("array<float>").alias("x"), label)
"""


def test_a_worker_group_whose_container_is_preempted_resumes_from_the_step_at_its_sigterm(
    exports: Exports, configured: Cluster
) -> None:
    dataset = exports.plan(ROWS)
    exported = run_to_end(dataset)
    assert exported.status == "succeeded", exported.error
    dag = DAG("preempted", schedule=None)
    dag.fileloc = str(ROOT / "tests" / "cluster" / "dags" / "slow" / "dag.py")
    operator = TrainOperator(
        task_id="train", dag=dag, recipe="slow.recipe:network", dataset=str(dataset.spec["dataset"]), model="model",
        workers=2, epochs=1, batch_size=5, memory=Memory(heap="512m", native="2g"),
        placement=Placement(queue="train", node_label="gpu"),
    )  # fmt: skip
    plan = build_plan(operator, exports.root)

    def preempt(cluster: Cluster, application: str) -> bool:
        """Signal a container as a NodeManager does, once it trains."""
        progress = storage.exists(f"{plan.task_key.directory}/progress/train.json") and storage.read(
            f"{plan.task_key.directory}/progress/train.json"
        )
        if not progress or b'"forward"' not in progress:
            return False
        container = os.getsid(find_processes(application, EXECUTOR)[-1].pid)
        os.killpg(container, signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
        with suppress(ProcessLookupError):  # it has ended before
            os.killpg(container, signal.SIGKILL)
        return True

    record = run_with_fault(plan, configured, preempt)
    assert record.output["restarts"] == 1
    [restart] = [e for e in events.read(plan.task_key.directory) if e["name"] == "restart"]
    assert "received SIGTERM" in restart["args"]["reason"]
    assert "The state is saved" in restart["args"]["reason"]
