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
