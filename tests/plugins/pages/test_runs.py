"""The runs of a pipeline, from Airflow's database and from the directories of a storage, and their pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plugins.pages.conftest import Airflow
from trainyard.pages import runs


@given(st.lists(st.integers(), max_size=200))
def test_all_pages_together_have_every_item_once(items: list[int]) -> None:
    pages = runs.paginate(items, 1).pages
    joined = [item for number in range(1, pages + 1) for item in runs.paginate(items, number).items]
    assert joined == items


@pytest.mark.parametrize(("number", "shown"), [(-3, 1), (0, 1), (2, 2), (99, 3)])
def test_a_page_number_out_of_range_gives_the_nearest_page(number: int, shown: int) -> None:
    assert runs.paginate(list(range(60)), number).number == shown


def list_ids(airflow: Airflow, count: int) -> list[str]:
    directories = runs.list_directories(airflow.root, "toy")
    return [run.run_id for run in runs.list_runs(airflow.root, "toy", directories, count)]


@pytest.mark.airflow
def test_runs_of_the_database_come_first_and_the_newest_of_them_first(airflow: Airflow) -> None:
    for number, known in enumerate([True, False, True, True, False]):
        airflow.run("toy", f"r{number}", number, known)
    assert list_ids(airflow, 9) == ["r3", "r2", "r0", "r4", "r1"]
    assert list_ids(airflow, 4) == ["r3", "r2", "r0", "r4"]
    assert list_ids(airflow, 2) == ["r3", "r2"]
    assert [run.run_id for run in runs.read_page(airflow.root, "toy", 7).items] == ["r3", "r2", "r0", "r4", "r1"]


@pytest.mark.airflow
def test_no_more_runs_of_the_database_are_read_than_are_shown(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def count(run_id: str) -> str:
        names.append(run_id)
        return run_id

    monkeypatch.setattr(runs, "path_safe", count)
    for number in range(30):
        airflow.run("toy", f"r{number:02}", number)
    directories = {f"r{number:02}" for number in range(30)}
    names.clear()
    assert len(runs.list_runs(airflow.root, "toy", directories, 3)) == 3
    assert names == ["toy", "r29", "r28", "r27"]
    assert len(runs.list_runs(airflow.root, "toy", {"r29"}, 30)) == 1
    assert names[4:] == ["toy", "r29"]
