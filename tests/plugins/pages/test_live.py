"""Which tasks of a run have started and not ended."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.plugins.results import output
from trainyard.files import storage
from trainyard.pages import live
from trainyard.pages.runs import Run
from trainyard.schemas.runs import run_record
from trainyard.schemas.runs.failure import Failure
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.runs.worker_progress import GroupProgress
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.schemas.specs.task_key import TaskKey


def key(root: Path, attempt: int) -> TaskKey:
    return TaskKey(dag_id="toy", run_id="r", task_id="train", try_number=attempt, directory=f"{root}/runs/toy/r")


def start(root: Path, attempt: int) -> None:
    spec = ScriptSpec(task_key=key(root, attempt), script="toy.script", workers=1)
    storage.replace(f"{root}/runs/toy/r/specs/train.json", spec.to_json().encode())


def running(root: Path) -> list[str]:
    return [task.task for task in live.list_running_tasks(Run("toy", "r", f"{root}/runs/toy/r", "running"), {})]


def test_a_task_runs_until_its_attempt_has_ended(tmp_path: Path) -> None:
    start(tmp_path, 2)
    Failure(task_key=key(tmp_path, 1), at=1.0, error="lost").save()
    assert running(tmp_path) == ["train"]
    run = Run("toy", "r", f"{tmp_path}/runs/toy/r", "running")
    assert live.list_running_names(run) == ["train"]
    Failure(task_key=key(tmp_path, 2), at=2.0, error="lost").save()
    assert running(tmp_path) == []


def test_an_unreadable_spec_hides_the_names_of_running_tasks_alone(tmp_path: Path) -> None:
    run = Run("toy", "r", f"{tmp_path}/runs/toy/r", "running")
    storage.replace(f"{run.directory}/specs/train.json", b"{")
    assert live.list_running_names(run) == []


def test_no_task_of_a_run_that_airflow_deleted_is_running(tmp_path: Path) -> None:
    start(tmp_path, 1)
    assert live.list_running_tasks(Run("toy", "r", f"{tmp_path}/runs/toy/r"), {}) == []


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"document": "ensemble spec", "version": 3}', '{"document": []}'])
def test_a_file_that_is_no_spec_of_a_known_job_is_noted_beside_the_others(tmp_path: Path, text: str) -> None:
    run, unreadable = Run("toy", "r", f"{tmp_path}/runs/toy/r", "running"), dict[str, str]()
    start(tmp_path, 1)
    storage.replace(f"{run.directory}/specs/other.json", text.encode())
    assert [task.task for task in live.list_running_tasks(run, unreadable)] == ["train"]
    assert list(unreadable) == ["other.json"]
    assert f"{run.directory}/specs/other.json is not the spec of a job" in unreadable["other.json"]


def test_a_task_that_used_the_record_of_an_earlier_attempt_has_ended(tmp_path: Path) -> None:
    start(tmp_path, 2)
    record = RunRecord(
        task_key=key(tmp_path, 1), job="script", application="a", started_at=1.0, seconds=1.0, status="succeeded",
        output=output("script"),
    )  # fmt: skip
    record.save()
    assert running(tmp_path) == ["train"]
    run_record.mark_used(key(tmp_path, 2), record)
    assert running(tmp_path) == []


def test_the_end_of_an_earlier_attempt_may_be_written_long_after_the_start_of_the_next(tmp_path: Path) -> None:
    start(tmp_path, 2)
    hour_ago = time.time() - 3600
    os.utime(tmp_path / "runs/toy/r/specs/train.json", (hour_ago, hour_ago))
    Failure(task_key=key(tmp_path, 1), at=2.0, error="lost").save()
    assert running(tmp_path) == ["train"]


def test_what_has_ended_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(tmp_path, 1)
    Failure(task_key=key(tmp_path, 1), at=2.0, error="lost").save()
    assert running(tmp_path) == []
    monkeypatch.setattr(storage, "read", None)
    unreadable: dict[str, str] = {}
    assert live.list_running_tasks(Run("toy", "r", f"{tmp_path}/runs/toy/r", "running"), unreadable) == []
    assert unreadable == {}


@pytest.mark.parametrize(("first_try", "seconds_before", "is_shown"), [(1, 60, True), (1, -60, False), (2, 60, False)])
def test_an_attempt_that_waits_for_the_application_of_an_earlier_one_has_its_progress(
    tmp_path: Path, first_try: int, seconds_before: float, is_shown: bool
) -> None:
    """Not progress from before the attempt, nor that from before the task was cleared."""
    spec = ScriptSpec(
        task_key=key(tmp_path, 2).model_copy(update={"first_try": first_try}), script="toy.script", workers=1
    )
    uri = tmp_path / "runs/toy/r/specs/train.json"
    storage.replace(str(uri), spec.to_json().encode())
    os.utime(uri, (1000 - seconds_before, 1000 - seconds_before))
    GroupProgress(task_key=key(tmp_path, 1), at=1000.0, workers=()).save()
    (task,) = live.list_running_tasks(Run("toy", "r", f"{tmp_path}/runs/toy/r", "running"), {})
    assert (task.progress is not None) == is_shown


def test_a_task_whose_record_cannot_be_read_is_not_shown_as_running(tmp_path: Path) -> None:
    start(tmp_path, 1)
    storage.replace(f"{tmp_path}/runs/toy/r/records/train.json", b"{")
    unreadable: dict[str, str] = {}
    assert live.list_running_tasks(Run("toy", "r", f"{tmp_path}/runs/toy/r", "running"), unreadable) == []
    assert list(unreadable) == ["records/train.json"]
