"""Tags of applications: a task's is not mistaken for one of another kind, whatever the task is named."""

from __future__ import annotations

import pytest

from trainyard.planning.paths import (
    application_tag,
    is_reserved_tag,
    is_submission_tag,
    path_safe,
    storage_tag,
    submission_tag,
)
from trainyard.schemas.specs.task_key import TaskKey


def task_tag(task_id: str) -> str:
    return application_tag(TaskKey(dag_id="toy", run_id="r", task_id=task_id, directory="file:///s/runs/toy/r"))


@pytest.mark.parametrize("task_id", ["storage", "storage-clean", "submission", "submission-1", "task", "-", "a" * 200])
def test_no_name_of_a_task_makes_a_tag_of_another_kind(task_id: str) -> None:
    assert not is_submission_tag(task_tag(task_id))
    kinds = {tag.split("-")[1] for tag in (task_tag(task_id), storage_tag("file:///s"), submission_tag("1"))}
    assert kinds == {"task", "storage", "submission"}
    assert len(task_tag(task_id)) <= 100, "YARN refuses longer ones"


def test_the_tag_of_a_submission_is_recognized() -> None:
    assert is_submission_tag(submission_tag("1"))


@pytest.mark.parametrize("tag", [task_tag("train"), submission_tag("1"), "trainyard", "Trainyard-x"])
def test_tags_of_trainyard_are_reserved(tag: str) -> None:
    assert is_reserved_tag(tag)


@pytest.mark.parametrize("tag", ["team-x", "trainyards", "my-trainyard-1"])
def test_other_tags_are_not(tag: str) -> None:
    assert not is_reserved_tag(tag)


@pytest.mark.parametrize("name", ["a" * 250, "ä" * 250, "manual__2026-01-01T00:00:00+00:00", ".hidden"])
def test_any_name_makes_a_component_of_a_path(name: str) -> None:
    assert len(path_safe(name)) <= 255
    assert path_safe(name) != path_safe(f"{name[:-1]}x")
