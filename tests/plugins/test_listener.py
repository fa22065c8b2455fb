"""What the listener stores and renders after the end of a task; for marked tasks see triggers/test_marked_tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator

from trainyard import listener
from trainyard.hooks.trainyard import Settings, TrainyardHook
from trainyard.operators import PromoteOperator, ScriptOperator
from trainyard.planning.paths import run_directory
from trainyard.schemas.runs import failure, outcomes
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey

FOREIGN = """
import sys
from trainyard import listener

class TaskInstance:
    task = object()

listener.on_task_instance_success("running", TaskInstance())
listener.on_task_instance_failed("running", TaskInstance(), "lost")
print("trainyard.jobs.operator" in sys.modules)
"""


@dataclass
class TaskInstance:
    """What the listener uses of Airflow's task instance."""

    task: BaseOperator
    dag_id: str = "toy"
    run_id: str = "r1"
    task_id: str = "script"
    map_index: int = -1
    try_number: int = 1
    max_tries: int = 0


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a run, of which one application has ended."""
    monkeypatch.setattr(TrainyardHook, "get_conn", lambda self: Settings(str(tmp_path), shared=True))
    directory = run_directory(str(tmp_path), "toy", "r1")
    RunRecord(
        task_key=TaskKey(dag_id="toy", run_id="r1", task_id="before", directory=directory), job="script",
        application="a", started_at=1.0, seconds=1.0, status="succeeded", output={"workers": 2, "restarts": 0},
    ).save()  # fmt: skip
    return Path(directory)


@pytest.fixture
def task_instance(dag_file: Path) -> TaskInstance:
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    (dag_file.parent / "program.py").write_text("")
    return TaskInstance(ScriptOperator(task_id="script", dag=dag, script="toy.program", workers=1))


def test_a_success_is_rendered_into_the_report(directory: Path, task_instance: TaskInstance) -> None:
    listener.on_task_instance_success("running", task_instance)
    assert "before" in (directory / "report.html").read_text()


@pytest.mark.parametrize("end", [listener.on_task_instance_success, listener.on_task_instance_skipped])
def test_a_promotion_is_rendered_into_the_report_also_if_it_skips(directory: Path, end: Any) -> None:
    promote = PromoteOperator(task_id="promote", evaluation="e", champion="toy/champion", metric="accuracy")
    end("running", TaskInstance(promote, task_id="promote"))
    assert "before" in (directory / "report.html").read_text()


def test_a_failure_is_stored_and_rendered_into_the_report(directory: Path, task_instance: TaskInstance) -> None:
    listener.on_task_instance_failed("running", task_instance, RuntimeError("no space left"))
    (stored,) = failure.read_run(str(directory))
    assert (stored.task_key.task, stored.error) == ("script", "no space left")
    assert "no space left" in (directory / "report.html").read_text()


def test_an_operator_without_a_job_stores_its_failure_until_it_succeeds(directory: Path) -> None:
    """The page of a run gave no reason where a promotion had failed."""
    promote = PromoteOperator(task_id="promote", evaluation="e", champion="toy/champion", metric="accuracy")
    for end in (listener.on_task_instance_success, listener.on_task_instance_skipped):
        listener.on_task_instance_failed("running", TaskInstance(promote, task_id="promote"), "there is no evaluation")
        (outcome,) = [one for one in outcomes.read_run(str(directory)) if one.status == "failed"]
        assert (outcome.task_key.task, outcome.error) == ("promote", "there is no evaluation")
        end("running", TaskInstance(promote, task_id="promote", try_number=2))
        assert failure.read_run(str(directory)) == []
        assert "there is no evaluation" not in (directory / "report.html").read_text()


def test_other_operators_leave_nothing(directory: Path) -> None:
    foreign: Any = TaskInstance(BaseOperator(task_id="other"))
    listener.on_task_instance_success("running", foreign)
    listener.on_task_instance_failed("running", foreign, "lost")
    assert not (directory / "report.html").exists() and failure.read_run(str(directory)) == []


@pytest.mark.slow
def test_the_end_of_another_operator_s_task_does_not_import_trainyard_s() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", FOREIGN], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["False"]
