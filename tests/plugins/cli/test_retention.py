"""`trainyard gc`: what it prints and removes, beside an Airflow with active runs and a ResourceManager."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.jobs.retention.stored import NOW, Store
from tests.plugins.resource_managers import Answer, application, applications, serve, write_yarn_site
from trainyard.cli.main import main
from trainyard.files import storage
from trainyard.hooks import airflow_id
from trainyard.planning.paths import storage_tag, submission_tag
from trainyard.schemas.runs.owner import Owner
from trainyard.schemas.specs.task_key import TaskKey

pytestmark = pytest.mark.airflow

AIRFLOW = f"{airflow_id.PREFIX}retention"
OPTIONS = ["gc", "--older-than", "30d", "--keep", "1"]


@pytest.fixture
def store(airflow_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Three runs, of which two are old, and two old versions of a dataset."""
    from airflow.models import Variable

    store = Store(tmp_path / "s")
    store.folder.mkdir()
    extra = {"storage": store.root, "shared": True}
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps({"conn_type": "trainyard", "extra": extra}))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    now = (time.time() - NOW) / 86400
    for number, days in enumerate([100, 90, 1], start=1):
        store.run(f"r{number}", days - now)
    store.dataset([100 - now, 90 - now])
    Variable.set(AIRFLOW, "")
    yield store
    Variable.delete(AIRFLOW)


def run_names(store: Store) -> list[str]:
    return storage.list_names(f"{store.root}/runs/toy")


def test_a_dry_run_lists_what_would_be_removed_and_removes_nothing(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    before = store.names()
    assert main([*OPTIONS, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["kind", "URI", "age", "size", "why"]
    assert lines[1].split()[:4] == ["runs", f"{store.root}/runs/toy/r1", "100", "d"]
    assert lines[1].endswith("older than 30 d, not among the newest 1")
    assert lines[3].split()[:4] == ["datasets", f"{store.root}/toy/dataset/versions/00000001.json", "90", "d"]
    assert lines[4].startswith("runs: 2, ") and lines[5].startswith("datasets: 1, ") and lines[6].startswith("total: 3")
    assert lines[-1] == "Dry run: nothing was done. Remove 3 items with --yes."
    assert store.names() == before


def test_with_yes_it_removes_what_was_listed(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OPTIONS, "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Removed 3 of 3."
    assert run_names(store) == ["r3"]
    assert main([*OPTIONS, "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "total: 0, 0 B"


def test_only_the_chosen_kinds_are_removed(store: Store) -> None:
    assert main([*OPTIONS, "--only", "datasets", "--yes"]) == 0
    assert run_names(store) == ["r1", "r2", "r3"]
    assert storage.list_names(f"{store.root}/toy/dataset/versions") == ["00000002.json"]


def test_by_default_five_are_kept_and_nothing_younger_than_ninety_days_is_removed(store: Store) -> None:
    assert main(["gc", "--yes"]) == 0
    assert run_names(store) == ["r1", "r2", "r3"]


def test_environments_of_all_connections_and_of_sparks_configuration_stay(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{letter * 16}-environment.tar.gz" for letter in "abcde"]
    uris = [f"{store.root}/environments/{name}" for name in names]
    for days, name in zip((100, 99, 98, 50, 97), names, strict=True):
        storage.replace(f"{store.root}/environments/{name}", b"tar")
        os.utime(store.folder / "environments" / name, (time.time() - days * 86400,) * 2)
    profiles = {"gpu": {"environment": uris[4]}}
    extra = {"storage": store.root, "environment": uris[0], "shared": True, "profiles": profiles}
    monkeypatch.setenv("AIRFLOW_CONN_ON_GPUS", json.dumps({"conn_type": "trainyard", "extra": extra}))
    (tmp_path / "spark-defaults.conf").write_text(f"spark.archives {uris[1]}#environment\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert main([*OPTIONS, "--only", "environments", "--yes"]) == 0
    assert storage.list_names(f"{store.root}/environments") == [names[0], names[1], names[3], names[4]]


@pytest.fixture
def dag_run(store: Store) -> Iterator[None]:
    """An active run in Airflow's database, with the id of the oldest run in the storage."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunType

    with create_session() as session:
        session.add(DagRun(dag_id="toy", run_id="r1", run_type=DagRunType.MANUAL, state=DagRunState.RUNNING))
    yield
    with create_session() as session:
        session.query(DagRun).where(DagRun.dag_id == "toy").delete()


@pytest.mark.usefixtures("dag_run")
def test_the_directory_of_an_active_run_stays(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OPTIONS, "--yes"]) == 0
    assert "kept although old enough: 1 its DAG run is active" in capsys.readouterr().out
    assert run_names(store) == ["r1", "r3"]


@pytest.fixture
def yarn(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The applications of a ResourceManager to which the Spark connection submits."""
    entries: list[dict[str, Any]] = []
    fields = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(fields))
    with serve(lambda method, path, query: Answer(applications(*entries))) as server:
        write_yarn_site(tmp_path, monkeypatch, server)
        yield entries


def test_the_directory_of_a_live_application_stays_though_its_task_is_gone(
    store: Store, yarn: list[dict[str, Any]]
) -> None:
    key = TaskKey(dag_id="toy", run_id="r2", task_id="train", directory=f"{store.root}/runs/toy/r2")
    Owner(task_key=key, airflow=AIRFLOW).save(store.root, submission_tag("1"))
    tags = ("trainyard", storage_tag(store.root), submission_tag("1"))
    yarn.append(application(1, applicationTags=",".join(tags)))
    assert main([*OPTIONS, "--yes"]) == 0
    assert run_names(store) == ["r2", "r3"]


def test_nothing_is_removed_while_the_resource_manager_does_not_answer(
    store: Store, yarn: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainyard.errors import UnavailableError
    from trainyard.yarn import cluster

    def fail() -> None:
        raise UnavailableError("the ResourceManager did not answer")

    monkeypatch.setattr(cluster, "resource_manager", fail)
    assert main([*OPTIONS, "--yes"]) == 1
    assert "the ResourceManager did not answer" in capsys.readouterr().err
    assert run_names(store) == ["r1", "r2", "r3"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--older-than", "30", "--older-than '30' is not a duration; write a number and a unit"),
        ("--keep", "0", "--keep 0 is not valid; write 1 or more"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_by_its_option(
    option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gc", option, value]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_kind_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gc", "--only", "run"])
    assert "invalid choice: 'run' (choose from 'environments', 'runs', 'checkpoints'" in capsys.readouterr().err


def test_what_could_not_be_removed_is_an_error(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(source: str, target: str) -> None:
        raise PermissionError(source)

    monkeypatch.setattr(storage, "move", fail)
    assert main([*OPTIONS, "--yes"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "Removed 1 of 3."


def test_a_database_of_airflow_without_tables_is_named_with_what_to_run(store: Store, tmp_path: Path) -> None:
    environment = os.environ | {"AIRFLOW_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{tmp_path}/empty.db"
    command = [sys.executable, "-m", "trainyard", *OPTIONS]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert re.search(
        r"^Airflow's database cannot be read: OperationalError: .*no such table.*\. Run `airflow db migrate` if it has "
        r"no tables",
        ended.stderr, re.M,
    )  # fmt: skip
