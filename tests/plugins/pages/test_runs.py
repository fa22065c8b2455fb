"""Which runs a page shows, and how long their stages waited. Pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.pages import runs
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey


def record(task: str, began: float, seconds: float) -> RunRecord:
    task_key = TaskKey(dag_id="toy", run_id="r1", task_id=task, directory="file:///runs/toy/r1")
    return RunRecord(
        task_key=task_key, job="export", application="a1", started_at=began, seconds=seconds, status="succeeded"
    )


def test_a_stage_waits_from_the_end_of_all_before_it() -> None:
    found = runs.waits([record("a", 100, 50), record("b", 120, 10), record("c", 155, 5), record("d", 170, 1)])
    assert [stage.waited for stage in found] == [None, 0.0, pytest.approx(5), pytest.approx(10)]


@given(st.lists(st.integers(), max_size=200))
def test_the_pages_of_a_list_are_the_list(items: list[int]) -> None:
    pages = runs.page(items, 1).pages
    found = [item for number in range(1, pages + 1) for item in runs.page(items, number).items]
    assert found == items


@pytest.mark.parametrize(("asked", "got"), [(-3, 1), (0, 1), (2, 2), (99, 3)])
def test_a_page_that_there_is_not_is_the_nearest_that_there_is(asked: int, got: int) -> None:
    assert runs.page(list(range(60)), asked).number == got
