"""The standing of a gang: where each of its ranks is, as the driver heard last.

`DIRECTORY/standing/TASK.json` is replaced every few seconds while the gang runs.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import NonNegativeInt

from trainyard import storage
from trainyard.schemas.document import Document, Part
from trainyard.schemas.specs.task_key import TaskKey


class WorkerProgress(Part):
    """What a rank is doing: `step` global batches of `epoch` (counted from 1) are behind it."""

    rank: NonNegativeInt
    host: str
    phase: str
    epoch: int
    step: int


class GroupProgress(Document):
    """The ranks of the gang of a task, at `at` seconds since the epoch; those that have not been heard are left out."""

    KIND: ClassVar[str] = "progress"

    task_key: TaskKey
    at: float
    workers: tuple[WorkerProgress, ...]

    def save(self) -> None:
        storage.replace(_uri(self.task_key), self.to_json().encode())


def read_latest(task_key: TaskKey) -> GroupProgress | None:
    """The standing of this try of a task, None when its gang has told of none yet."""
    uri = _uri(task_key)
    found = GroupProgress.load(uri) if storage.exists(uri) else None
    return found if found and found.task_key.try_number == task_key.try_number else None


def _uri(task_key: TaskKey) -> str:
    return storage.join(task_key.directory, "progress", f"{task_key.task}.json")
