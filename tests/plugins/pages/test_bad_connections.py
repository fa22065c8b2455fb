"""Pages of an Airflow of which one connection cannot be used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from tests.plugins.pages.conftest import Airflow
from tests.plugins.pages.test_pages import RUN, save_usage, task_key
from trainyard.files import filesystems

pytestmark = pytest.mark.airflow

FAR = "hdfs://far:8020/trainyard"


class Unreachable(LocalFileSystem):  # type: ignore[misc]
    """A cluster whose NameNode does not answer."""

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        """Raise what a client raises."""
        raise OSError("no NameNode of far answers")


@pytest.fixture
def bad(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> Airflow:
    """An Airflow with a good connection that has a run, a cluster that does not answer, and a mistaken connection."""
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    save_usage(task_key(airflow, "ann.digits"))
    monkeypatch.setattr(filesystems, "_REGISTERED", {"hdfs://far:8020": Unreachable()})
    for conn_id, extra in (("far", {"storage": FAR}), ("mistaken", {"storage": airflow.root, "webhdfs": "nowhere"})):
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": "trainyard", "extra": extra}))
    return airflow


@pytest.mark.parametrize("page", ["", "usage"])
def test_the_others_are_shown_and_a_bad_connection_with_its_reason(bad: Airflow, page: str) -> None:
    answer = bad.get(page)
    assert answer.status_code == 200
    assert "ann.digits" in answer.text
    assert "far" in answer.text and "no NameNode of far answers" in answer.text
    assert "mistaken" in answer.text and "there is no connection &#39;nowhere&#39;" in answer.text


def fail_below(ending: str, error: Exception) -> dict[str, LocalFileSystem]:
    """Return this machine's storage, with an error for directories whose path ends so."""

    class Partly(LocalFileSystem):  # type: ignore[misc]
        def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
            if path.endswith(ending):
                raise error
            return super().ls(path, detail, **options)

    return {"file://": Partly()}


SEALED = fail_below("ann.sealed", RuntimeError("Permission denied: ann.sealed"))


@pytest.mark.parametrize("page", ["", "usage"])
def test_the_other_dags_are_shown_and_a_directory_that_cannot_be_read_with_its_reason(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    for dag_id in ("ann.digits", "ann.sealed"):
        airflow.dag(dag_id)
        airflow.run(dag_id, "r1")
        save_usage(task_key(airflow, dag_id))
    monkeypatch.setattr(filesystems, "_REGISTERED", SEALED)
    answer = airflow.get(page)
    assert answer.status_code == 200
    assert "ann.digits" in answer.text
    assert "trainyard_default, DAG ann.sealed" in answer.text
    assert "RuntimeError: Permission denied: ann.sealed" in answer.text


def test_a_page_of_a_directory_that_cannot_be_read_says_why(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    airflow.dag("ann.sealed")
    airflow.run("ann.sealed", "r1")
    monkeypatch.setattr(filesystems, "_REGISTERED", SEALED)
    answer = airflow.get("pipeline", conn_id="trainyard_default", dag_id="ann.sealed")
    assert answer.status_code == 503
    assert "Permission denied: ann.sealed" in answer.text


def test_a_pipeline_is_shown_beside_a_dataset_that_cannot_be_listed(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    monkeypatch.setattr(filesystems, "_REGISTERED", fail_below("versions", LookupError("Access denied: versions")))
    answer = airflow.get("pipeline", conn_id="trainyard_default", dag_id="ann.digits")
    assert answer.status_code == 200 and "7.0 s" in answer.text
    assert f"{airflow.root}/toy/dataset" in answer.text and "LookupError: Access denied: versions" in answer.text


def test_an_error_of_an_unknown_kind_is_shown_on_a_page_of_its_own(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    monkeypatch.setattr(filesystems, "_REGISTERED", fail_below("", LookupError("no such bucket")))
    answer = airflow.get("run", raises=False, **RUN)
    assert answer.status_code == 500 and "LookupError: no such bucket" in answer.text


@pytest.mark.parametrize("page", ["pipeline", "run", "report"])
def test_a_page_of_a_bad_connection_says_why_it_cannot_be_read(bad: Airflow, page: str) -> None:
    answer = bad.get(page, **RUN | {"conn_id": "far"})
    assert answer.status_code == 503
    assert "no NameNode of far answers" in answer.text


def test_no_database_connection_is_held_while_storage_is_read(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow import settings

    held: list[int] = []

    class Watching(LocalFileSystem):  # type: ignore[misc]
        def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
            held.append(settings.engine.pool.checkedout())
            return super().ls(path, detail, **options)

    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    monkeypatch.setattr(filesystems, "_REGISTERED", {"file://": Watching()})
    for page, query in (("", {}), ("usage", {}), ("pipeline", RUN), ("run", RUN)):
        assert airflow.get(page, **dict[str, Any](query)).status_code == 200
    assert held and set(held) == {0}
