"""Values of an Airflow connection, which may be secrets: no error repeats one, wherever it was written by mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from trainyard.clusters.registry import find_cluster
from trainyard.errors import TrainyardError
from trainyard.hooks import TrainyardHook, YarnHook, webhdfs
from trainyard.hooks.spark import spark_connection

MARKER = "hunter2-marker"
WRONG = [
    MARKER,
    f"s3://AKIA:{MARKER}@bucket/x",
    f"http://me:{MARKER}@host/x",
    [MARKER],
    {"password": MARKER},
    {MARKER: 1},
]
"""What somebody may write into a field that is not for it."""


def read_spark(conn_id: str) -> None:
    find_cluster(spark_connection(conn_id))


READERS: dict[str, tuple[Callable[[str], Any], dict[str, Any]]] = {
    "trainyard": (lambda conn_id: TrainyardHook(conn_id).get_conn(), {}),
    "yarn": (lambda conn_id: YarnHook(conn_id).get_conn(), {"host": "rm"}),
    "spark": (read_spark, {"host": "yarn"}),
    "webhdfs": (webhdfs.connect, {"host": "nn"}),
}
"""What reads a connection of each type, and fields with which it can."""
EXTRAS = {
    "trainyard": ["storage", "shared", "environment", "preflight"],
    "yarn": ["auth", "gateway", "ca_file"],
    "spark": ["queue", "deploy-mode"],
}


def read(monkeypatch: pytest.MonkeyPatch, kind: str, fields: dict[str, Any]) -> str:
    """Return the error of reading a connection, "" if it is read."""
    monkeypatch.setenv("AIRFLOW_CONN_MISTAKEN", json.dumps({"conn_type": kind, **READERS[kind][1], **fields}))
    try:
        READERS[kind][0]("mistaken")
    except TrainyardError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("value", WRONG, ids=str)
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in EXTRAS.items() for name in names])
def test_an_error_of_an_extra_names_the_field_and_repeats_no_value(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str, value: Any
) -> None:
    error = read(monkeypatch, kind, {"extra": {name: value}})
    assert MARKER not in error
    assert ("connection 'mistaken'" in error and name in error) or (not error and kind == "spark")


@pytest.mark.parametrize("extra", [MARKER, f'"{MARKER}"', f'["{MARKER}"]', f'{{"storage": "{MARKER}'])
@pytest.mark.parametrize("kind", EXTRAS)
def test_an_extra_that_is_no_json_object_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, kind: str, extra: str
) -> None:
    error = read(monkeypatch, kind, {"extra": extra})
    assert "its extra is not a JSON object" in error and MARKER not in error


@pytest.mark.parametrize("host", [f"http://me:{MARKER}@host/x", f"me:{MARKER}@host", f"{MARKER}/x"])
@pytest.mark.parametrize("kind", ["yarn", "webhdfs", "spark"])
def test_an_error_of_a_host_repeats_no_password(monkeypatch: pytest.MonkeyPatch, kind: str, host: str) -> None:
    """With the host, the password came into every error of the ResourceManager."""
    error = read(monkeypatch, kind, {"host": host})
    assert "connection 'mistaken'" in error and "host" in error and MARKER not in error


@pytest.mark.parametrize("kind", ["yarn", "webhdfs"])
def test_an_error_of_a_schema_repeats_no_value(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    error = read(monkeypatch, kind, {"schema": MARKER})
    assert "schema: write http or https" in error and MARKER not in error


@pytest.mark.parametrize(
    "uri", [f"s3://AKIA:{MARKER}@bucket/x", f"s3://:{MARKER}@bucket", f"hdfs://nn/x/ghp_{'a1B2' * 9}"]
)
@pytest.mark.parametrize("name", ["storage", "environment"])
def test_a_uri_with_a_secret_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, uri: str) -> None:
    """It was in every page, report and log."""
    error = read(monkeypatch, "trainyard", {"extra": {name: uri}})
    assert f"extra {name} has a secret" in error and uri not in error and MARKER not in error


@pytest.mark.parametrize("uri", ["abfss://container@acme.dfs.core.windows.net/x", "hdfs://nn:8020/user/me@corp"])
def test_a_uri_with_a_container_is_a_storage(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    assert read(monkeypatch, "trainyard", {"extra": {"storage": uri}}) == ""
