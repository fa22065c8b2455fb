"""A task requests what its options, its connection and its profile say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from trainyard.errors import TrainyardError
from trainyard.hooks.trainyard import Settings
from trainyard.operators import ExportOperator, Memory, TrainOperator
from trainyard.planning.plan import Plan
from trainyard.planning.profile import Profile
from trainyard.schemas.specs.task_key import TaskKey

YARN = '{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}'
GPU = Profile(queue="train", node_label="gpu", gpus_per_worker=1, memory="16g")


@pytest.fixture
def dag(dag_file: Path) -> DAG:
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    return dag


def plan(dag: DAG, **options: Any) -> Plan:
    operator = TrainOperator(task_id="train", dag=dag, recipe="toy.recipe:network", dataset="toy/d", **options)
    key = TaskKey(dag_id="toy", run_id="r", task_id="train", directory="hdfs://nn/s/runs/toy/r")
    return operator.plan(key, Settings("hdfs://nn/s", profiles={"gpu": GPU}))


@pytest.fixture
def yarn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", YARN)


@pytest.mark.usefixtures("yarn")
def test_a_task_runs_where_its_profile_says(dag: DAG) -> None:
    conf = plan(dag, profile="gpu").conf
    assert conf["spark.yarn.executor.nodeLabelExpression"] == "gpu"
    assert conf["spark.task.resource.gpu.amount"] == "1"
    sizes = [conf[f"spark.executor.{part}"].removesuffix("m") for part in ("memory", "memoryOverhead")]
    assert sum(map(int, sizes)) == 16 * 1024
    assert plan(dag_of(dag), profile="gpu").queue == "train"


def dag_of(dag: DAG) -> DAG:
    """Return another DAG in the same file."""
    other = DAG("other", schedule=None)
    other.fileloc = dag.fileloc
    return other


@pytest.mark.usefixtures("yarn")
def test_a_profile_that_the_connection_lacks_is_refused_on_a_cluster(dag: DAG) -> None:
    with pytest.raises(
        TrainyardError,
        match=r"^TrainOperator 'train': profile='tpu' is not in the extra of connection 'trainyard_default', which has "
        r"gpu; add it, for example \{\"profiles\": \{\"tpu\": \{\"node_label\": \"gpu\"",
    ):
        plan(dag, profile="tpu")


def test_a_dag_with_a_profile_runs_unchanged_on_a_local_master(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    assert plan(dag, profile="tpu").conf == plan(dag_of(dag)).conf


def test_memory_may_be_that_of_the_container_in_all(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", YARN)
    assert plan(dag, memory="8g").memory == Memory(heap="1561m", native="6247m")
    export = ExportOperator(
        task_id="export", dag=dag, prepare="toy.prepare:rows", source="hdfs://nn/in", dataset="d",
        memory="{{ params.memory }}", params={"memory": "3g"},
    )  # fmt: skip
    export.memory = "3g"  # rendered
    key = TaskKey(dag_id="toy", run_id="r", task_id="export", directory="hdfs://nn/s/runs/toy/r")
    assert export.plan(key, Settings("hdfs://nn/s")).memory == Memory(heap="1792m", native="896m")
