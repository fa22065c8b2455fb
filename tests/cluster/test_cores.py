"""What YARN grants to the cores that an operator requests, and the threads that workers have then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from airflow.sdk import DAG

from stack.hadoop.cluster import Cluster
from stack.hadoop.containers import ContainerWatch
from tests.cluster.jobs import Exports, build_plan, run_to_end
from trainyard.operators import Memory, Placement, ScriptOperator

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(900)]


def test_the_example_of_dl4j_at_half_its_size(
    exports: Exports, cluster: Cluster, tmp_path: Path, writable: Path
) -> None:
    """4 executors x 8 cores, 4 GB heap, 5 GB native, 1 GB more; here 2 x 4 cores and a fourth of the memory."""
    package = tmp_path / "dags" / "cores"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    shutil.copy(Path(__file__).parents[1] / "trainer" / "scripts" / "threads.py", package)
    dag = DAG("cores", schedule=None)
    dag.fileloc = str(package / "dag.py")
    operator = ScriptOperator(
        task_id="train", dag=dag, script="cores.threads", arguments=[str(writable)], workers=2, cores_per_worker=4,
        memory=Memory(heap="1g", native="1280m", jvm_overhead="256m"),
        placement=Placement(queue="train", node_label="gpu"),
    )  # fmt: skip
    plan = build_plan(operator, exports.root)
    with ContainerWatch(cluster) as watch:
        assert run_to_end(plan).status == "succeeded"
    workers = [c for c in watch.containers if c.application == plan.name and not c.driver]
    assert [(worker.cores, worker.megabytes, worker.label) for worker in workers] == [(4, 2560, "gpu")] * 2
    assert len({worker.node for worker in workers}) == 2
    for rank in range(2):
        assert json.loads((writable / f"{rank}.json").read_text()) == {"omp": "4", "torch": 4}
