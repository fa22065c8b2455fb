"""How each task of a run ended: run records, and failures of attempts without one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plugins.results import output
from trainyard.errors import TrainyardError
from trainyard.schemas.runs import outcomes, run_record
from trainyard.schemas.runs.failure import Failure
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey


def key(root: Path, attempt: int = 1) -> TaskKey:
    return TaskKey(dag_id="toy", run_id="r", task_id="train", try_number=attempt, directory=f"{root}/runs/toy/r")


def save_record(root: Path, attempt: int = 1, error: str | None = None, application: str = "a") -> None:
    RunRecord(
        task_key=key(root, attempt), job="train", application=application, started_at=10.0, seconds=5.0,
        status="failed" if error else "succeeded", output=output("train"), error=error,
    ).save()  # fmt: skip


def save_failure(root: Path, attempt: int, error: str) -> None:
    Failure(task_key=key(root, attempt), at=20.0, error=error).save()


def outcome(root: Path) -> tuple[Any, ...]:
    (found,) = outcomes.read_run(f"{root}/runs/toy/r")
    return found.status, found.job, found.error


def test_the_error_of_the_task_replaces_that_of_its_driver(tmp_path: Path) -> None:
    """The task's error has the cause in front of it."""
    save_record(tmp_path, error="ConnectionRefusedError")
    save_failure(tmp_path, 1, "nvidia-smi found 0 GPUs\nConnectionRefusedError")
    assert outcome(tmp_path) == ("failed", "train", "nvidia-smi found 0 GPUs\nConnectionRefusedError")


def test_a_failure_without_a_record_is_an_outcome(tmp_path: Path) -> None:
    save_failure(tmp_path, 1, "queue is stopped")
    assert outcome(tmp_path) == ("failed", "", "queue is stopped")


def test_a_failure_of_an_earlier_attempt_is_none(tmp_path: Path) -> None:
    save_failure(tmp_path, 1, "lost")
    save_record(tmp_path, attempt=2)
    assert outcome(tmp_path) == ("succeeded", "train", None)


def test_a_later_attempt_that_waited_for_a_driver_has_its_record(tmp_path: Path) -> None:
    """The application that the first attempt has submitted failed while the second one waited for it."""
    save_record(tmp_path, attempt=1, error="the loss diverged")
    save_failure(tmp_path, 2, "the loss diverged")
    assert outcome(tmp_path) == ("failed", "train", "the loss diverged")
    save_failure(tmp_path, 3, "queue is stopped")
    assert outcome(tmp_path) == ("failed", "", "queue is stopped")


def test_a_failure_of_a_later_attempt_is_the_outcome(tmp_path: Path) -> None:
    save_record(tmp_path, attempt=1)
    save_failure(tmp_path, 2, "lost")
    assert outcome(tmp_path) == ("failed", "", "lost")


def use_record(root: Path, attempt: int) -> None:
    record = run_record.read_latest(key(root))
    assert record
    run_record.mark_used(key(root, attempt), record)


def test_a_task_that_used_the_record_of_an_earlier_attempt_after_a_failure_has_succeeded(tmp_path: Path) -> None:
    """The ResourceManager was away while attempt 2 started; attempt 3 found that the application had succeeded."""
    save_record(tmp_path, attempt=1)
    save_failure(tmp_path, 2, "no active ResourceManager answers")
    use_record(tmp_path, attempt=3)
    assert outcome(tmp_path) == ("succeeded", "train", None)


def test_a_failure_after_the_record_was_used_is_the_outcome(tmp_path: Path) -> None:
    """The task was cleared, and failed."""
    save_record(tmp_path, attempt=1)
    use_record(tmp_path, attempt=1)
    save_failure(tmp_path, 2, "lost")
    assert outcome(tmp_path) == ("failed", "", "lost")


def test_a_failure_counts_when_the_record_that_was_used_was_another(tmp_path: Path) -> None:
    save_record(tmp_path, attempt=1)
    use_record(tmp_path, attempt=3)
    save_record(tmp_path, attempt=4, application="b")
    save_failure(tmp_path, 5, "lost")
    assert outcome(tmp_path) == ("failed", "", "lost")


def test_a_task_that_failed_after_its_driver_succeeded_keeps_the_result_of_the_driver(tmp_path: Path) -> None:
    save_record(tmp_path)
    save_failure(tmp_path, 1, "the result could not be published")
    assert outcome(tmp_path) == ("succeeded", "train", None)


def test_what_cannot_be_read_is_noted_and_the_rest_is_read(tmp_path: Path) -> None:
    save_record(tmp_path)
    folder = tmp_path / "runs/toy/r"
    for part, kind in (("records", "run record"), ("failures", "failure")):
        (folder / part).mkdir(exist_ok=True)
        (folder / part / "other.json").write_text(f'{{"document": "{kind}", "version": 99}}')
    unreadable: dict[str, str] = {}
    assert [one.task_key.task for one in outcomes.read_run(str(folder), unreadable)] == ["train"]
    assert list(unreadable) == ["records/other.json", "failures/other.json"]
    assert "is a run record of version 99" in unreadable["records/other.json"]
    with pytest.raises(TrainyardError, match="is a run record of version 99"):
        outcomes.read_run(str(folder))
