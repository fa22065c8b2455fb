"""The settings of a connection of type trainyard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from airflow.sdk import DAG

from trainyard.errors import TrainyardError
from trainyard.hooks import TrainyardHook
from trainyard.hooks.trainyard import Settings, warn_of_hosts
from trainyard.operators import ExportOperator
from trainyard.planning.plan import Plan
from trainyard.schemas.specs.task_key import TaskKey


@pytest.fixture
def connection(tmp_path: Path) -> dict[str, str]:
    """The extra of the default connection; it may be changed."""
    return {"storage": tmp_path.as_uri()}


def settings(monkeypatch: pytest.MonkeyPatch, extra: dict[str, str]) -> Settings:
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps({"conn_type": "trainyard", "extra": extra}))
    return TrainyardHook().get_conn()


def planned_conf(at: Settings, dag_file: Path) -> Mapping[str, str]:
    return planned(at, dag_file, None).conf


def planned_preflight(at: Settings, dag_file: Path, preflight: str | None) -> str:
    return planned(at, dag_file, preflight).preflight


def planned(at: Settings, dag_file: Path, preflight: str | None) -> Plan:
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    operator = ExportOperator(
        task_id="export", dag=dag, prepare="toy.prepare:rows", source="/in", dataset="d", preflight=preflight,
    )  # fmt: skip
    task_key = TaskKey(dag_id="toy", run_id="r", task_id="export", directory=f"{at.storage}/runs/toy/r")
    return operator.plan(task_key, at)


def test_without_any_setting_preflight_is_strict(monkeypatch: pytest.MonkeyPatch, connection: dict[str, str]) -> None:
    assert settings(monkeypatch, connection).preflight == "strict"


def test_preflight_is_that_of_airflows_configuration(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str]
) -> None:
    monkeypatch.setenv("AIRFLOW__TRAINYARD__PREFLIGHT", "warn")
    assert settings(monkeypatch, connection).preflight == "warn"


def test_the_connection_overrides_the_configuration(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str]
) -> None:
    monkeypatch.setenv("AIRFLOW__TRAINYARD__PREFLIGHT", "warn")
    assert settings(monkeypatch, connection | {"preflight": "off"}).preflight == "off"


@pytest.mark.parametrize(("option", "preflight"), [("strict", "strict"), (None, "off")])
def test_the_option_of_an_operator_overrides_the_connection(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str], dag_file: Path, option: str | None, preflight: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    at = settings(monkeypatch, connection | {"preflight": "off"})
    assert planned_preflight(at, dag_file, option) == preflight


def test_an_unknown_preflight_of_the_connection_is_refused(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str]
) -> None:
    with pytest.raises(TrainyardError) as refused:
        settings(monkeypatch, connection | {"preflight": "loose"})
    assert str(refused.value) == (
        "connection 'trainyard_default': preflight='loose' is not valid; write one of strict, warn, off."
    )


def test_an_unknown_preflight_of_an_operator_is_refused_while_the_dag_is_parsed() -> None:
    with pytest.raises(TrainyardError) as refused:
        ExportOperator(task_id="export", prepare="toy.prepare:rows", source="/in", dataset="d", preflight="loose")
    assert str(refused.value) == "ExportOperator 'export': preflight='loose': write 'strict', 'warn' or 'off'."


def test_the_test_of_a_connection_writes_to_the_storage(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str], tmp_path: Path
) -> None:
    settings(monkeypatch, connection)
    assert TrainyardHook().test_connection() == (True, f"{tmp_path.as_uri()} can be written to.")
    assert list(tmp_path.iterdir()) == []


def test_the_test_of_a_connection_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    connection["storage"] = f"{tmp_path.as_uri()}/file/storage"
    settings(monkeypatch, connection)
    works, problem = TrainyardHook().test_connection()
    assert not works
    assert "file" in problem


def test_a_packed_environment_is_a_uri(monkeypatch: pytest.MonkeyPatch, connection: dict[str, str]) -> None:
    assert settings(monkeypatch, connection).environment is None
    uri = "hdfs:///trainyard/environments/a-environment.tar.gz"
    assert settings(monkeypatch, {**connection, "environment": uri}).environment == uri


@pytest.mark.parametrize("value", ["environment.tar.gz", "/data/environment.tar.gz", "hdfs:///e.tar.gz#environment", 5])
def test_another_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str], value: str
) -> None:
    with pytest.raises(TrainyardError, match="connection 'trainyard_default': extra environment="):
        settings(monkeypatch, {**connection, "environment": value})


def test_applications_on_yarn_run_with_the_connections_environment(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str], dag_file: Path
) -> None:
    yarn = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(yarn))
    uri = "hdfs:///trainyard/environments/a-environment.tar.gz"
    at = settings(monkeypatch, {**connection, "environment": uri, "shared": "true"})
    assert planned_conf(at, dag_file)["spark.pyspark.python"] == "./environment/bin/python"


@pytest.mark.parametrize(
    ("executors", "warns"),
    [
        ("LocalExecutor", False),
        ("CeleryExecutor", True),
        ("LocalExecutor,airflow.providers.cncf.kubernetes.executors.kubernetes_executor.KubernetesExecutor", True),
    ],
)
def test_a_default_storage_on_several_hosts_is_a_warning(executors: str, warns: bool) -> None:
    assert ("runs tasks on several hosts" in warn_of_hosts("trainyard_default", executors)) is warns


def test_a_connection_with_a_storage_has_no_warning(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    settings(monkeypatch, connection)
    assert "names no storage" not in capsys.readouterr().out
    settings(monkeypatch, {})
    assert "names no storage" in capsys.readouterr().out
