"""The page with the report of a run."""

from __future__ import annotations

import time

import pytest

from tests.plugins.pages.conftest import Airflow
from trainyard.files import storage, uris
from trainyard.schemas.runs.failure import Failure
from trainyard.schemas.specs.task_key import TaskKey

pytestmark = pytest.mark.airflow

RUN = {"conn_id": "trainyard_default", "dag_id": "ann.digits", "run_id": "r1"}


def fail(directory: str, error: str) -> None:
    """End another task of the run."""
    key = TaskKey(dag_id="ann.digits", run_id="r1", task_id="train", directory=directory)
    Failure(task_key=key, at=time.time(), error=error).save()


def test_a_report_is_rendered_again_where_a_task_has_ended_since(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    directory = airflow.run("ann.digits", "r1", job="script", output={})
    assert "export" in airflow.get("report", **RUN).text
    storage.replace(uris.join(directory, "report.html"), b"the report")
    assert airflow.get("report", **RUN).text == "the report"
    fail(directory, "no space left")
    assert "no space left" in airflow.get("report", **RUN).text


def test_a_report_that_cannot_be_written_is_shown_as_it_is(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(uri: str, data: bytes) -> None:
        raise PermissionError("read only")

    airflow.dag("ann.digits")
    directory = airflow.run("ann.digits", "r1", job="script", output={})
    storage.replace(uris.join(directory, "report.html"), b"the report")
    fail(directory, "no space left")
    monkeypatch.setattr(storage, "replace", refuse)
    assert airflow.get("report", **RUN).text == "the report"
    assert f"The report of {directory} cannot be written" in caplog.text


def test_a_report_cannot_act_as_its_reader(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    storage.replace(uris.join(airflow.run("ann.digits", "r1", job="script", output={}), "report.html"), b"the report")
    policy = airflow.get("report", **RUN).headers["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "sandbox allow-scripts", "frame-ancestors 'self'"} <= set(policy)


def test_a_report_that_is_not_utf_8_is_shown(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    storage.replace(uris.join(airflow.run("ann.digits", "r1", job="script", output={}), "report.html"), b"50 \xb5s")
    assert airflow.get("report", **RUN).text == "50 \ufffds"
