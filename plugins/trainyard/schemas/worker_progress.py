"""The progress of a worker group: the phase, epoch and step of each worker.

`DIRECTORY/progress/TASK.json` is replaced every few seconds while the group runs.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import NonNegativeInt

from trainyard import storage
from trainyard.schemas.document import Document, Part
from trainyard.schemas.specs.task_key import TaskKey


class WorkerProgress(Part):
    """The progress of one worker: it has finished `step` global batches of `epoch` (counted from 1)."""

    rank: NonNegativeInt
    host: str
    phase: str
    epoch: int
    step: int


class GroupProgress(Document):
    """The progress of the workers of a task that have sent a heartbeat, at `at` seconds since the epoch."""

    KIND: ClassVar[str] = "progress"

    task_key: TaskKey
    at: float
    workers: tuple[WorkerProgress, ...]

    def save(self) -> None:
        """Store the progress, replacing the previous one."""
        storage.replace(_uri(self.task_key), self.to_json().encode())


def read_latest(task_key: TaskKey) -> GroupProgress | None:
    """Return the progress of this attempt of a task, None if its group has not reported yet."""
    uri = _uri(task_key)
    progress = GroupProgress.load(uri) if storage.exists(uri) else None
    return progress if progress and progress.task_key.try_number == task_key.try_number else None


def _uri(task_key: TaskKey) -> str:
    return storage.join(task_key.directory, "progress", f"{task_key.task}.json")
