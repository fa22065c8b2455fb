"""Pages of runs, and the waits between stages. Pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.pages import runs
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey


def record(task: str, start: float, seconds: float) -> RunRecord:
    task_key = TaskKey(dag_id="toy", run_id="r1", task_id=task, directory="file:///runs/toy/r1")
    return RunRecord(
        task_key=task_key, job="export", application="a1", started_at=start, seconds=seconds, status="succeeded"
    )


def test_a_stage_waits_from_the_end_of_all_before_it() -> None:
    stages = runs.compute_waits([record("a", 100, 50), record("b", 120, 10), record("c", 155, 5), record("d", 170, 1)])
    assert [stage.waited for stage in stages] == [None, 0.0, pytest.approx(5), pytest.approx(10)]


@given(st.lists(st.integers(), max_size=200))
def test_all_pages_together_have_every_item_once(items: list[int]) -> None:
    pages = runs.paginate(items, 1).pages
    joined = [item for number in range(1, pages + 1) for item in runs.paginate(items, number).items]
    assert joined == items


@pytest.mark.parametrize(("number", "shown"), [(-3, 1), (0, 1), (2, 2), (99, 3)])
def test_a_page_number_out_of_range_gives_the_nearest_page(number: int, shown: int) -> None:
    assert runs.paginate(list(range(60)), number).number == shown
