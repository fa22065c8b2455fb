"""The settings of a connection of type trainyard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.hooks import TrainyardHook
from trainyard.hooks.trainyard import EXTRA_FIELDS, Settings, default_storage, warn_of_hosts
from trainyard.operators import ExportOperator
from trainyard.planning.plan import Plan
from trainyard.planning.profile import Profile
from trainyard.provider import get_provider_info
from trainyard.schemas.specs.task_key import TaskKey


@pytest.fixture
def connection(tmp_path: Path) -> dict[str, str]:
    """The extra of the default connection; it may be changed."""
    return {"storage": tmp_path.as_uri()}


def settings(monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any]) -> Settings:
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps({"conn_type": "trainyard", "extra": extra}))
    return TrainyardHook().get_conn()


def test_a_name_has_the_path_that_options_of_operators_give_it(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str], tmp_path: Path
) -> None:
    settings(monkeypatch, connection)
    assert TrainyardHook().path("digits/source") == f"{tmp_path.as_uri()}/digits/source"
    assert TrainyardHook().path("hdfs://nn/x") == "hdfs://nn/x"
    with pytest.raises(TrainyardError, match="below the storage root"):
        TrainyardHook().path("../x")


def planned_conf(at: Settings, dag_file: Path) -> Mapping[str, str]:
    return planned(at, dag_file, None).conf


def planned_preflight(at: Settings, dag_file: Path, preflight: str | None) -> str:
    return planned(at, dag_file, preflight).job.preflight


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
        "connection 'trainyard_default': preflight is not valid; write one of strict, warn, off."
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


@pytest.mark.parametrize(
    "uri",
    ["/data/trainyard", "file:///data", "hdfs:///trainyard", "hdfs://namenode:8020/trainyard", "s3a://bucket/trainyard",
     "viewfs://cluster/trainyard"],
)  # fmt: skip
def test_a_storage_is_an_absolute_path_or_a_uri(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    assert settings(monkeypatch, {"storage": uri}).storage == uri


@pytest.mark.parametrize(
    "value",
    ["relative/dir", "./x", "~/x", "file:/tmp/x", "file:x", "file://tmp/x", "hdfs:/x", "hdfs://", " file:///x", "C:\\x",
     "file:///x#y", "hdfs://n/a?b", "/x ", "hdfs://n/x\u3000", 5, ["a"], {"uri": "/x"}, False],
)  # fmt: skip
def test_another_storage_is_refused(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    with pytest.raises(TrainyardError) as refused:
        settings(monkeypatch, {"storage": value})
    assert str(refused.value) == (
        "connection 'trainyard_default': extra storage: write a URI with all its slashes and without "
        "#, ? or a space at the end, for example hdfs://namenode:8020/trainyard or file:///data/trainyard, or an "
        "absolute path."
    )


@pytest.mark.parametrize("value", [None, ""])
def test_a_field_that_airflows_form_leaves_empty_has_its_default(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    assert settings(monkeypatch, dict.fromkeys(EXTRA_FIELDS, value)) == Settings(default_storage())


def test_an_unknown_key_of_the_extra_is_refused(monkeypatch: pytest.MonkeyPatch, connection: dict[str, str]) -> None:
    with pytest.raises(TrainyardError) as refused:
        settings(monkeypatch, connection | {"storages": "file:///secret"})
    assert str(refused.value) == (
        "connection 'trainyard_default': extra has the unknown key 'storages'; known are storage, shared, webhdfs, "
        "environment, preflight, profiles."
    )


@pytest.mark.parametrize("extra", ["[1]", "storage=/data", '"x"', "3", "{"])
def test_an_extra_that_is_no_json_object_is_refused(monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps({"conn_type": "trainyard", "extra": extra}))
    with pytest.raises(TrainyardError) as refused:
        TrainyardHook().get_conn()
    assert str(refused.value) == (
        "connection 'trainyard_default': its extra is not a JSON object; write one, for example "
        '{"storage": "file:///data/trainyard"}.'
    )


def test_the_keys_of_the_extra_are_the_fields_of_airflows_form() -> None:
    fields = {kind["connection-type"]: kind["conn-fields"] for kind in get_provider_info()["connection-types"]}
    assert tuple(fields["trainyard"]) == EXTRA_FIELDS


@pytest.mark.parametrize("value", [7, ["webhdfs_default"]])
def test_a_webhdfs_connection_is_named_by_a_string(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str], value: Any
) -> None:
    with pytest.raises(TrainyardError, match=r"extra webhdfs: write the id of a connection of type webhdfs\.$"):
        settings(monkeypatch, connection | {"webhdfs": value})


def test_a_packed_environment_is_a_uri(monkeypatch: pytest.MonkeyPatch, connection: dict[str, str]) -> None:
    assert settings(monkeypatch, connection).environment is None
    uri = "hdfs:///trainyard/environments/a-environment.tar.gz"
    assert settings(monkeypatch, {**connection, "environment": uri}).environment == uri


@pytest.mark.parametrize("value", ["environment.tar.gz", "/data/environment.tar.gz", "hdfs:///e.tar.gz#environment", 5])
def test_another_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str], value: str
) -> None:
    with pytest.raises(TrainyardError, match="connection 'trainyard_default': extra environment: "):
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


@pytest.mark.parametrize("executor", ["CeleryExecutor", "LocalExecutor"])
def test_the_log_says_once_where_the_storage_is_if_the_connection_does_not(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str], capsys: pytest.CaptureFixture[str], executor: str
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", executor)
    monkeypatch.setattr("trainyard.hooks.trainyard._REPORTED", set())
    settings(monkeypatch, connection)
    assert "names no storage" not in capsys.readouterr().out
    settings(monkeypatch, {})
    settings(monkeypatch, {})
    printed = capsys.readouterr().out
    assert printed.count("names no storage") == 1 and default_storage() in printed


GPU = {"queue": "train", "node_label": "gpu", "gpus_per_worker": 1, "memory": "16g", "conf": {"spark.x": 1}}


def test_a_connection_has_profiles(monkeypatch: pytest.MonkeyPatch, connection: dict[str, str]) -> None:
    found = settings(monkeypatch, connection | {"profiles": {"gpu": GPU, "etl": {}}}).profiles  # type: ignore[dict-item]
    assert found == {"gpu": Profile(**GPU | {"conf": {"spark.x": "1"}}), "etl": Profile()}


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        (["gpu"], r"extra profiles is not valid \(dict_type\); profiles are objects by name"),
        (
            {"gpu": {"que": "x"}},
            r"extra profiles\.gpu\.que is not valid \(unexpected_keyword_argument\); .* with queue, node_label",
        ),
        ({"gpu": {"queue": ""}}, r"extra profiles\.gpu\.queue is not valid"),
        ({"gpu": {"node_label": ""}}, r"extra profiles\.gpu\.node_label is not valid"),
        ({"gpu": {"driver_label": ""}}, r"extra profiles\.gpu\.driver_label is not valid"),
        ({"gpu": {"image": ""}}, r"extra profiles\.gpu\.image is not valid"),
        ({"gpu": {"gpus_per_worker": -1}}, r"extra profiles\.gpu\.gpus_per_worker is not valid"),
        ({"gpu": {"environment": "env.tar.gz"}}, r"extra environment: write the URI of an archive"),
        ({"gpu": {"conf": {"spark.my.password": "marker"}}}, r"extra profiles\.gpu has a secret"),
        ({"gpu": {"image": "https://me:marker@registry/x"}}, r"extra profiles\.gpu has a secret"),
    ],
)
def test_a_profile_that_is_not_valid_is_refused_without_its_value(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, str], profiles: Any, message: str
) -> None:
    with pytest.raises(TrainyardError, match=f"^connection 'trainyard_default': {message}") as refused:
        settings(monkeypatch, connection | {"profiles": profiles})
    assert "marker" not in str(refused.value)


def test_the_default_storage_has_the_name_of_its_folder_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "Jörg Über"))
    storage.create(f"{default_storage()}/file", b"")
    assert (tmp_path / "Jörg Über" / "trainyard" / "file").exists()
