"""Why the newest try of a task failed, whether an application did or what comes before one.

`DIRECTORY/failures/TASK.json`, written by Airflow's side: a driver that is killed, or never starts, leaves no record.
"""

from __future__ import annotations

from typing import ClassVar

from trainyard import storage
from trainyard.schemas.document import Document
from trainyard.schemas.specs.task_key import TaskKey


class Failure(Document):
    """At `at` seconds since the epoch the try at `place` had failed; `error` is what its log says."""

    KIND: ClassVar[str] = "failure"

    task_key: TaskKey
    at: float
    error: str

    def save(self) -> None:
        storage.replace(_uri(self.task_key.directory, self.task_key.task), self.to_json().encode())


def read_latest(task_key: TaskKey) -> Failure | None:
    """The newest failure of a task, of whichever try."""
    uri = _uri(task_key.directory, task_key.task)
    return Failure.load(uri) if storage.exists(uri) else None


def read_run(directory: str) -> list[Failure]:
    """Those of a run's tasks."""
    root = storage.join(directory, "failures")
    return [Failure.load(storage.join(root, name)) for name in storage.list_names(root) if not name.startswith(".")]


def _uri(directory: str, task: str) -> str:
    return storage.join(directory, "failures", f"{task}.json")
