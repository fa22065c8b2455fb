"""Whose result is a task's, after crashes and after it was cleared."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.schemas import run_record
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey


@pytest.fixture
def task_key(tmp_path: Path) -> TaskKey:
    """The second try of a task that was not cleared."""
    return TaskKey(dag_id="d", run_id="r", task_id="t", directory=str(tmp_path), try_number=2)


@pytest.fixture
def taken(task_key: TaskKey) -> RunRecord:
    """What the second try took, of the application that the first submitted."""
    submitted = task_key.model_copy(update={"try_number": 1})
    found = RunRecord(
        task_key=submitted,
        job="export",
        application="application_1_0001",
        started_at=0.0,
        seconds=1.0,
        status="succeeded",
    )
    run_record.mark_used(task_key, found)
    return found


def test_before_anything_is_taken_nothing_is_spent(task_key: TaskKey) -> None:
    assert run_record.used_application(task_key) is None and run_record.superseded_application(task_key) is None


def test_what_a_try_took_that_died_before_airflow_knew_is_there_for_the_next(
    task_key: TaskKey, taken: RunRecord
) -> None:
    retried = task_key.model_copy(update={"try_number": 3})
    assert run_record.used_application(retried) == taken.application
    assert run_record.superseded_application(retried) is None


@pytest.mark.parametrize("tries", [{"try_number": 3, "first_try": 3}, {"try_number": 4, "first_try": 3}])
def test_what_was_taken_before_the_task_was_cleared_is_spent(
    task_key: TaskKey, taken: RunRecord, tries: dict[str, int]
) -> None:
    assert run_record.superseded_application(task_key.model_copy(update=tries)) == taken.application


@pytest.mark.parametrize("number", [1, 2])
def test_what_was_taken_before_the_run_was_begun_anew_is_spent(
    task_key: TaskKey, taken: RunRecord, number: int
) -> None:
    assert run_record.superseded_application(task_key.model_copy(update={"try_number": number})) == taken.application
