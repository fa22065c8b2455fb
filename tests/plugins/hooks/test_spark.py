"""Where a connection of type spark submits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainyard.errors import TrainyardError
from trainyard.hooks.spark import spark_connection


def connect(monkeypatch: pytest.MonkeyPatch, extra: Any) -> None:
    fields = {"conn_type": "spark", "host": "yarn", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_PROD", json.dumps(fields))


@pytest.mark.parametrize("extra", [{"queue": "etl", "deploy-mode": "cluster", "spark-binary": "spark-submit"}])
def test_queue_and_deploy_mode_are_those_of_the_extra(monkeypatch: pytest.MonkeyPatch, extra: Any) -> None:
    connect(monkeypatch, extra)
    found = spark_connection("spark_prod")
    assert (found.master, found.queue, found.deploy_mode) == ("yarn", "etl", "cluster")


@pytest.mark.parametrize("extra", ["", {}, {"queue": "", "deploy-mode": None}])
def test_an_extra_may_be_empty(monkeypatch: pytest.MonkeyPatch, extra: Any) -> None:
    connect(monkeypatch, extra)
    found = spark_connection("spark_prod")
    assert (found.queue, found.deploy_mode) == (None, None)


@pytest.mark.parametrize("extra", ['["a"]', '"x"', "null", "5", "{bad"])
def test_an_extra_that_is_no_json_object_is_refused(monkeypatch: pytest.MonkeyPatch, extra: str) -> None:
    """The application would be in another queue."""
    connect(monkeypatch, extra)
    with pytest.raises(TrainyardError) as refused:
        spark_connection("spark_prod")
    assert str(refused.value) == (
        "connection 'spark_prod': its extra is not a JSON object; write one, for example "
        '{"queue": "default", "deploy-mode": "cluster"}.'
    )


@pytest.mark.parametrize("key", ["queue", "deploy-mode"])
@pytest.mark.parametrize("value", [5, 0, ["etl"], False])
def test_a_value_that_is_no_string_is_refused(monkeypatch: pytest.MonkeyPatch, key: str, value: Any) -> None:
    connect(monkeypatch, {key: value})
    with pytest.raises(TrainyardError) as refused:
        spark_connection("spark_prod")
    assert str(refused.value) == f"connection 'spark_prod': extra {key}: write a string."
