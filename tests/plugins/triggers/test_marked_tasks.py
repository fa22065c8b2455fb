"""The application of a deferred task ends when a user marks the task, whichever process is asked to."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from trainyard import listener
from trainyard.errors import TrainyardError
from trainyard.triggers import marked_tasks


@dataclass
class TaskInstance:
    """What Airflow's API server hands to a listener."""

    dag_id: str = "toy"
    run_id: str = "r1"
    task_id: str = "export"
    map_index: int = -1


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    killed: list[str] = []
    monkeypatch.setattr(marked_tasks.cluster, "kill_named", lambda id, name: killed.append(f"{id} {name}"))
    return killed


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marked_tasks, "_find_application", lambda task_instance: "application_1")


def end_application() -> None:
    kill = marked_tasks.end_application(TaskInstance())
    assert kill
    kill.result()


@pytest.mark.usefixtures("announced")
def test_the_announced_application_is_killed(killed: list[str]) -> None:
    end_application()
    assert killed == ["application_1 toy.export"]


@pytest.mark.usefixtures("announced")
def test_thousands_of_tasks_that_are_marked_at_once_take_a_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, before = threading.Event(), threading.active_count()
    monkeypatch.setattr(marked_tasks.cluster, "kill_named", lambda *_: answered.wait(60))
    kills = [marked_tasks.end_application(TaskInstance()) for _ in range(500)]
    assert threading.active_count() - before <= 8
    answered.set()
    for kill in kills:
        assert kill
        kill.result()


def test_a_task_that_announced_none_kills_none(killed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marked_tasks, "_find_application", lambda task_instance: None)
    assert marked_tasks.end_application(TaskInstance()) is None
    assert killed == []


@pytest.mark.usefixtures("announced")
def test_an_application_that_cannot_be_killed_is_logged_with_what_ends_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(application: str, name: str) -> None:
        raise TrainyardError("no ResourceManager is active")

    monkeypatch.setattr(marked_tasks.cluster, "kill_named", refuse)
    end_application()
    (message,) = caplog.messages
    assert "may still run: no ResourceManager is active" in message and "trainyard app reap --yes" in message


@pytest.mark.parametrize(("previous_state", "calls"), [(None, 3), ("running", 0)])
def test_only_a_state_that_a_user_sets_ends_an_application(
    monkeypatch: pytest.MonkeyPatch, previous_state: str | None, calls: int
) -> None:
    """Airflow names the previous state where a task ran, and none where a user sets the state."""
    ended: list[object] = []
    monkeypatch.setattr(marked_tasks, "end_application", ended.append)
    listener.on_task_instance_failed(previous_state, TaskInstance(), "set by a user")
    listener.on_task_instance_success(previous_state, TaskInstance())
    listener.on_task_instance_skipped(previous_state, TaskInstance())
    assert len(ended) == calls
