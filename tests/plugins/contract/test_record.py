"""Whose result is a task's, after crashes and after it was cleared."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.contract import record
from trainyard.contract.record import RunRecord
from trainyard.contract.spec import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """The second try of a task that was not cleared."""
    return Place(dag_id="d", run_id="r", task_id="t", directory=str(tmp_path), try_number=2)


@pytest.fixture
def taken(place: Place) -> RunRecord:
    """What the second try took, of the application that the first submitted."""
    submitted = place.model_copy(update={"try_number": 1})
    found = RunRecord(
        place=submitted, job="export", application="application_1_0001", started_at=0.0, seconds=1.0, status="succeeded"
    )
    record.take(place, found)
    return found


def test_before_anything_is_taken_nothing_is_spent(place: Place) -> None:
    assert record.taken(place) is None and record.spent(place) is None


def test_what_a_try_took_that_died_before_airflow_knew_is_there_for_the_next(place: Place, taken: RunRecord) -> None:
    retried = place.model_copy(update={"try_number": 3})
    assert record.taken(retried) == taken.application
    assert record.spent(retried) is None


@pytest.mark.parametrize("tries", [{"try_number": 3, "first_try": 3}, {"try_number": 4, "first_try": 3}])
def test_what_was_taken_before_the_task_was_cleared_is_spent(
    place: Place, taken: RunRecord, tries: dict[str, int]
) -> None:
    assert record.spent(place.model_copy(update=tries)) == taken.application


@pytest.mark.parametrize("number", [1, 2])
def test_what_was_taken_before_the_run_was_begun_anew_is_spent(place: Place, taken: RunRecord, number: int) -> None:
    assert record.spent(place.model_copy(update={"try_number": number})) == taken.application
