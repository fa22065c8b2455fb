"""The failure record: why the newest attempt of a task failed.

`DIRECTORY/failures/TASK.json` is written by Airflow's side, because a driver that is killed or never starts leaves no
run record.
"""

from __future__ import annotations

from typing import ClassVar, Self

from trainyard.files import storage, uris
from trainyard.schemas.document import Document
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.types import ErrorText


class Failure(Document):
    """A failed attempt of a task."""

    KIND: ClassVar[str] = "failure"

    task_key: TaskKey
    """The attempt."""
    at: float
    """When it failed, in seconds since the epoch."""
    error: ErrorText
    """The error in the task log."""

    def place(self, uri: str) -> Self:
        """Return the document as one that lies at `uri`; see `TaskKey.place`."""
        return self.model_copy(update={"task_key": self.task_key.place(uri)})

    def save(self) -> None:
        """Store the record, replacing the one of an earlier attempt."""
        storage.replace(_uri(self.task_key.directory, self.task_key.task), self.to_json().encode())


def read_latest(task_key: TaskKey) -> Failure | None:
    """Return the newest failure of a task, of any attempt."""
    uri = _uri(task_key.directory, task_key.task)
    return Failure.load(uri) if storage.exists(uri) else None


def remove(task_key: TaskKey) -> bool:
    """Remove the newest failure of a task. Return whether there was one."""
    uri = _uri(task_key.directory, task_key.task)
    if not storage.exists(uri):
        return False
    storage.remove(uri)
    return True


def read_run(directory: str, unreadable: dict[str, str] | None = None) -> list[Failure]:
    """Return the failures of all tasks of a run; note those that are `unreadable`, or raise the error for None."""
    return Failure.load_all(uris.join(directory, "failures"), unreadable)


def _uri(directory: str, task: str) -> str:
    return uris.join(directory, "failures", f"{task}.json")
