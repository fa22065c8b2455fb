"""Whose result is a task's, after crashes and after it was cleared."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.plugins.results import output
from trainyard.schemas.runs import run_record
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey


@pytest.fixture
def task_key(tmp_path: Path) -> TaskKey:
    """Return the second attempt of a task that was not cleared."""
    return TaskKey(dag_id="d", run_id="r", task_id="t", directory=str(tmp_path), try_number=2)


@pytest.fixture
def used_record(task_key: TaskKey) -> RunRecord:
    """Mark the result of the first attempt's application as used by the second."""
    submitted = task_key.model_copy(update={"try_number": 1})
    record = RunRecord(
        task_key=submitted,
        job="export",
        application="application_1_0001",
        started_at=0.0,
        seconds=1.0,
        status="succeeded",
        output=output("export"),
    )
    run_record.mark_used(task_key, record)
    return record


def test_no_application_is_superseded_before_a_result_is_used(task_key: TaskKey) -> None:
    assert run_record.used_application(task_key) is None and run_record.superseded_application(task_key) is None


def test_a_result_that_a_crashed_attempt_used_is_available_to_the_next(
    task_key: TaskKey, used_record: RunRecord
) -> None:
    retried = task_key.model_copy(update={"try_number": 3})
    assert run_record.used_application(retried) == used_record.application
    assert run_record.superseded_application(retried) is None


@pytest.mark.parametrize(
    "attempt",
    [
        {"try_number": 3, "first_try": 3}, {"try_number": 4, "first_try": 3},
        {"try_number": 3, "max_tries": 3}, {"try_number": 4, "max_tries": 3},
    ],
)  # fmt: skip
def test_a_result_that_was_used_before_the_task_was_cleared_is_superseded(
    task_key: TaskKey, used_record: RunRecord, attempt: dict[str, int]
) -> None:
    """Also if the DAG's file has more retries now, so that all attempts seem to be since the last clear."""
    assert run_record.superseded_application(task_key.model_copy(update=attempt)) == used_record.application


@pytest.mark.parametrize("number", [1, 2])
def test_a_result_that_was_used_before_the_run_restarted_is_superseded(
    task_key: TaskKey, used_record: RunRecord, number: int
) -> None:
    assert (
        run_record.superseded_application(task_key.model_copy(update={"try_number": number})) == used_record.application
    )


def test_numbers_that_json_does_not_have_cost_no_result(task_key: TaskKey) -> None:
    """A record that cannot be read is a job that has failed."""
    result = output("train") | {"metrics": {"auroc": math.nan, "accuracy": 0.5}, "seconds": {"forward": math.inf}}
    record = RunRecord(
        task_key=task_key, job="train", application="a", started_at=0.0, seconds=1.0, status="succeeded", output=result
    )  # fmt: skip
    record.save()
    read = run_record.find_record(task_key)
    assert read and read.result == record.result
    assert read.output["metrics"] == {"auroc": None, "accuracy": 0.5} and read.output["seconds"] == {"forward": None}
