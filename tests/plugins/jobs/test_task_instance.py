"""What a job reads of its Airflow task instance."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trainyard.jobs.task_instance import task_key_of


@pytest.mark.parametrize(("try_number", "attempt"), [(0, 1), (1, 1), (3, 3)])
def test_a_task_that_airflow_tests_is_in_its_first_attempt(try_number: int, attempt: int) -> None:
    """`airflow tasks test` counts from 0."""
    ti = SimpleNamespace(
        dag_id="toy", run_id="r", task_id="t", map_index=-1, try_number=try_number, max_tries=0,
        task=SimpleNamespace(retries=0),
    )  # fmt: skip
    assert task_key_of(ti, "file:///s").try_number == attempt


@pytest.mark.parametrize(("retries", "first_try"), [(0, 2), (1, 1), (2, 1)])
def test_a_task_that_was_cleared_is_known_by_what_airflow_counts(retries: int, first_try: int) -> None:
    """The retries of the DAG's file may have changed since."""
    ti = SimpleNamespace(
        dag_id="toy", run_id="r", task_id="t", map_index=-1, try_number=2, max_tries=1,
        task=SimpleNamespace(retries=retries),
    )  # fmt: skip
    key = task_key_of(ti, "file:///s")
    assert (key.first_try, key.max_tries) == (first_try, 1)
