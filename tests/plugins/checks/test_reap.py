"""`trainyard app reap` and `doctor`: what they say of the applications that run, and which of them are ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.resource_managers import Answer, application, applications, serve, write_yarn_site
from trainyard.checks import doctor
from trainyard.cli.main import main
from trainyard.compat import AirflowException
from trainyard.hooks import airflow_id
from trainyard.operators.reap import ReapOperator
from trainyard.planning.paths import application_tag, storage_tag, submission_tag
from trainyard.schemas.runs.owner import Owner, list_submissions, remove_owner
from trainyard.schemas.specs.task_key import TaskKey

pytestmark = pytest.mark.airflow

AIRFLOW = f"{airflow_id.PREFIX}1"


@pytest.fixture
def root(airflow_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The storage of an Airflow with an identity, whose DAGs were deleted."""
    from airflow.models import Variable

    root = (tmp_path / "s").as_uri()
    for name, fields in (
        ("TRAINYARD", {"conn_type": "trainyard", "extra": {"storage": root, "shared": True}}),
        ("SPARK", {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}),
    ):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}_DEFAULT", json.dumps(fields))
    Variable.set(AIRFLOW, "")
    yield root
    Variable.delete(AIRFLOW)


@pytest.fixture
def entries(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, dict[str, Any]]]:
    """The applications of a ResourceManager by their ids: one of a task that is gone, one of another Airflow."""
    entries: dict[str, dict[str, Any]] = {}
    for number, airflow in enumerate([AIRFLOW, f"{airflow_id.PREFIX}2"], start=1):
        key = TaskKey(dag_id="gone", run_id="r", task_id="train", directory=f"{root}/runs/gone/r")
        Owner(task_key=key, airflow=airflow).save(root, submission_tag(str(number)))
        tags = (application_tag(key), storage_tag(root), submission_tag(str(number)))
        entry = application(number, applicationTags=",".join(tags))
        entries[entry["id"]] = entry

    def answer(method: str, path: str, query: dict[str, str]) -> Answer:
        if method == "PUT":
            entry = entries[path.split("/")[-2]]
            if entry["queue"] == "protected":
                return Answer({"RemoteException": {"message": "no"}}, 403)
            entry["state"] = "KILLED"
            return Answer({"state": "KILLED"}, 202)
        if path.endswith("/scheduler"):
            return Answer({"scheduler": {"schedulerInfo": {"type": "fifoScheduler"}}})
        if path.endswith("/apps"):
            return Answer(applications(*(entry for entry in entries.values() if entry["state"] == "RUNNING")))
        return Answer({})

    with serve(answer) as server:
        write_yarn_site(tmp_path, monkeypatch, server)
        yield entries


class Deleted:
    """The answers of Airflow about tasks of DAGs that were deleted."""

    def get_task_states(self, **_: Any) -> dict[str, Any]:
        return {}


def states(entries: dict[str, dict[str, Any]]) -> list[str]:
    return [entry["state"] for entry in entries.values()]


def test_reap_lists_the_applications_and_ends_none(
    entries: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["app", "reap", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    orphan, other = (line for line in shown.splitlines() if line.startswith("application_"))
    assert orphan.split()[-4:] == ["no", "such", "task", "orphaned"] and " gone " in orphan
    assert other.split()[-3:] == ["-", "other", "Airflow"]
    assert "1 of another Airflow: its Variable trainyard_airflow_... is not in this Airflow's database" in shown
    assert states(entries) == ["RUNNING", "RUNNING"]


def test_reap_kill_ends_the_orphaned_ones_and_forgets_their_owners(
    entries: dict[str, dict[str, Any]], root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["app", "reap", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Ended 1 orphaned application."
    assert states(entries) == ["KILLED", "RUNNING"]
    assert main(["app", "reap", "--yes"]) == 0
    assert list_submissions(root) == [submission_tag("2")]


@pytest.mark.parametrize(("arguments", "status"), [(["--dry-run"], 0), ([], 2)])
def test_records_of_ended_tasks_are_removed_only_after_a_yes(
    entries: dict[str, dict[str, Any]], root: str, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int
) -> None:
    entries.clear()
    assert main(["app", "reap", *arguments]) == status
    printed = capsys.readouterr()
    assert "End 0 orphaned applications, and remove 1 record of a task that has ended" in printed.out + printed.err
    assert list_submissions(root) == [submission_tag("1"), submission_tag("2")]
    assert main(["app", "reap", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "Ended 0 orphaned applications, and removed 1 record of a task that has ended."
    )
    assert list_submissions(root) == [submission_tag("2")]


def test_the_operator_forgets_the_owners_of_ended_tasks(
    entries: dict[str, dict[str, Any]], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries.clear()
    monkeypatch.setattr(airflow_id, "list_ids", lambda: frozenset({AIRFLOW}))  # a task asks its supervisor
    assert ReapOperator(task_id="reap").execute({"ti": Deleted()}) == []
    assert list_submissions(root) == [submission_tag("2")]


def test_reap_fails_if_yarn_refuses_to_end_an_application(
    entries: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    next(iter(entries.values()))["queue"] = "protected"
    assert main(["app", "reap", "--yes"]) == 1
    refused, total = capsys.readouterr().out.splitlines()[-2:]
    assert "cannot be killed" in refused and total == "Ended 0 orphaned applications."
    monkeypatch.setattr(airflow_id, "list_ids", lambda: frozenset({AIRFLOW}))  # a task asks its supervisor
    with pytest.raises(AirflowException, match="ReapOperator 'reap': YARN refused to kill application_"):
        ReapOperator(task_id="reap").execute({"ti": Deleted()})


def test_reap_says_that_no_application_runs(
    entries: dict[str, dict[str, Any]], root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    entries.clear()
    remove_owner(root, submission_tag("1"))
    assert main(["app", "reap"]) == 0
    assert capsys.readouterr().out == "No application runs.\nEnded 0 orphaned applications.\n"


def applications_check() -> doctor.Check:
    checks = doctor.run_checks("trainyard_default", "spark_default")
    return next(check for check in checks if check.subject == "applications")


def test_doctor_counts_the_orphaned_applications(entries: dict[str, dict[str, Any]]) -> None:
    assert applications_check().fix == "1 of 2 that run have no task; `trainyard app reap --yes` ends them."
    del entries[next(iter(entries))]
    assert applications_check() == doctor.Check("applications", "1 run, 1 other Airflow")
