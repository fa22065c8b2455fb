"""The identity of an Airflow task."""

from __future__ import annotations

import hashlib
from typing import Self

from pydantic import NonNegativeInt, PositiveInt

from trainyard.errors import TrainyardError
from trainyard.schemas.document import Part
from trainyard.schemas.types import TaskId

_MAX_BYTES = 150
"""Names of files have 255 bytes at most, and some of ours have the id of an application or a random part too."""


class TaskKey(Part):
    """The identity of an attempt of an Airflow task, and the directory of its run."""

    dag_id: str
    """The DAG."""
    run_id: str
    """The DAG run."""
    task_id: TaskId
    """The task."""
    map_index: int = -1
    """The index of a mapped task, -1 for any other."""
    try_number: PositiveInt = 1
    """The attempt, from 1."""
    first_try: PositiveInt = 1
    """The first attempt since the task was last cleared, by the retries that the DAG's file has now. A cleared task
    produces its result again."""
    max_tries: NonNegativeInt = 0
    """Airflow's count of attempts that may follow the first, which only a clear changes."""
    directory: str
    """The URI of the run's directory."""

    @property
    def task(self) -> str:
        """The task's name within the run, also of its files: distinct for distinct tasks, and not too long for a file.

        A mapped task has its index in it, after a character that no task id has.
        """
        name = self.task_id if self.map_index < 0 else f"{self.task_id}@{self.map_index}"
        if len(name.encode()) <= _MAX_BYTES:
            return name
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        return f"{name.encode()[: _MAX_BYTES - len(digest) - 1].decode(errors='ignore')}-{digest}"

    @property
    def root(self) -> str:
        """The storage root, of which the run's directory is `ROOT/runs/DAG/RUN`."""
        return self.directory.rstrip("/").rsplit("/", 3)[0]

    def place(self, uri: str) -> Self:
        """Return the key of a document of this task, which lies at `DIRECTORY/FOLDER/TASK.json`.

        Raises:
            TrainyardError: The document is of another task.
        """
        directory, _, name = uri.rsplit("/", 2)
        if name != f"{self.task}.json":
            raise TrainyardError(f"{uri} is a document of task {self.task!r}, which lies at another place.")
        return self.model_copy(update={"directory": directory})
