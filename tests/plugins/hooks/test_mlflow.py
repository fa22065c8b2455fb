"""The MLflow server of a training: that of a connection, unless its URI is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

from trainyard.errors import TrainyardError
from trainyard.hooks.mlflow import read_tracking_uri
from trainyard.jobs import dry_run
from trainyard.operators import TrainOperator
from trainyard.schemas.specs.job import TrackerOptions
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec


@pytest.mark.parametrize(
    ("connection", "uri"),
    [
        ("http://mlflow:5000", "http://mlflow:5000"),
        ("http://me:secret@mlflow/https", "https://mlflow"),
        (
            json.dumps({"conn_type": "mlflow", "host": "https://mlflow.example", "port": 443}),
            "https://mlflow.example:443",
        ),
    ],
)
def test_the_server_is_that_of_the_connection_without_its_login(
    monkeypatch: pytest.MonkeyPatch, connection: str, uri: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MLFLOW_DEFAULT", connection)
    assert read_tracking_uri("mlflow_default") == uri


def test_a_connection_without_a_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MLFLOW_DEFAULT", json.dumps({"conn_type": "http"}))
    with pytest.raises(
        TrainyardError, match="connection 'mlflow_default' has no host; write that of the MLflow server"
    ):
        read_tracking_uri("mlflow_default")


@pytest.fixture
def dag(dag_file: Path) -> DAG:
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    return dag


def build_trackers(dag: DAG, trackers: list[Any], **options: Any) -> list[tuple[str, str | None]]:
    train = TrainOperator(
        task_id=f"t{len(dag.tasks)}",
        dag=dag,
        recipe="toy.recipe:network",
        dataset="toy/d",
        trackers=trackers,
        **options,
    )
    key = TaskKey(dag_id="toy", run_id="r", task_id="t", directory="memory://s/runs/toy/r")
    spec = train.build_spec(key, "memory://s")
    assert isinstance(spec, TrainSpec)
    return [(tracker.name, tracker.uri) for tracker in spec.trackers]


def test_a_training_gets_the_server_of_the_connection_or_its_own(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_RUNS", "http://runs:5000")
    assert build_trackers(dag, ["tensorboard", "mlflow"], mlflow_conn_id="runs") == [
        ("tensorboard", None), ("mlflow", "http://runs:5000"),
    ]  # fmt: skip
    own = {"name": "mlflow", "uri": "http://mine:5000"}
    assert build_trackers(dag, [own, "tensorboard"]) == [("mlflow", "http://mine:5000"), ("tensorboard", None)]


def test_an_object_gets_the_server_of_the_connection_too(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MLFLOW_DEFAULT", "http://runs:5000")
    assert build_trackers(dag, [TrackerOptions(name="mlflow")]) == [("mlflow", "http://runs:5000")]


def test_several_servers_are_tracked_and_one_that_is_named_beside_its_connection_is_refused(
    dag: DAG, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MLFLOW_DEFAULT", "http://runs:5000")
    own = {"name": "mlflow", "uri": "http://mine:5000"}
    assert build_trackers(dag, ["mlflow", own]) == [("mlflow", "http://runs:5000"), ("mlflow", "http://mine:5000")]
    with pytest.raises(TrainyardError, match="'mlflow' at 'http://runs:5000' is named twice; remove one"):
        build_trackers(dag, ["mlflow", own | {"uri": "http://runs:5000"}])


def test_trackers_that_another_task_returns_are_planned_as_they_are(dag: DAG, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')

    @task(dag=dag)
    def choose() -> list[str]:
        return ["tensorboard"]

    train = TrainOperator(task_id="t", dag=dag, recipe="toy.recipe:network", dataset="toy/d", trackers=choose())
    assert train.resolve_fields("memory://s")["trackers"] is train.trackers
    (planned,) = dry_run.plan_dag(dag)
    assert planned.plan and "xcom_pull(task_ids='choose'" in planned.plan.job.spec["trackers"]


def test_a_missing_connection_is_named_with_the_command_that_creates_it(dag: DAG) -> None:
    with pytest.raises(
        TrainyardError, match=r"TrainOperator 't0': there is no connection 'runs' .* connections add runs "
    ):
        build_trackers(dag, ["mlflow"], mlflow_conn_id="runs")
