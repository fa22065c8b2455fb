"""The name of a task within its run: unique, and the name of a file on every storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.planning.paths import application_tag
from trainyard.schemas.runs.failure import Failure
from trainyard.schemas.specs.task_key import TaskKey


def task_key(task_id: str, map_index: int = -1, directory: str = "file:///s/runs/toy/r") -> TaskKey:
    return TaskKey(dag_id="toy", run_id="r", task_id=task_id, map_index=map_index, directory=directory)


def test_no_other_task_has_the_name_of_a_mapped_one() -> None:
    """The ids of tasks may have dots, as those in task groups do."""
    mapped, other = task_key("s", 0), task_key("s.0")
    assert (mapped.task, other.task) == ("s@0", "s.0")
    assert application_tag(mapped) != application_tag(other)


@pytest.mark.parametrize("letter", ["a", "ä"])
def test_the_name_of_a_task_is_the_name_of_a_file_however_long_its_id_is(letter: str) -> None:
    longest, other = letter * 250, f"{letter * 249}b"
    names = {task_key(longest).task, task_key(longest, 3).task, task_key(longest, 4).task, task_key(other).task}
    assert len(names) == 4
    assert all(len(name.encode()) <= 150 for name in names)


def test_the_failure_of_a_task_with_a_long_id_is_stored(tmp_path: Path) -> None:
    Failure(task_key=task_key("a" * 250, directory=f"file://{tmp_path}"), at=1.0, error="no tea").save()


def test_a_short_name_is_that_of_the_task() -> None:
    assert task_key("group.train-1").task == "group.train-1"
