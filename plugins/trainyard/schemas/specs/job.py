"""What all job specs have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Self

from trainyard.schemas.document import Document, Part
from trainyard.schemas.references import Reference
from trainyard.schemas.results import Result
from trainyard.schemas.specs.fields import Workers
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.trackers import Trackers


class Code(Part):
    """The version of the user's code that a task runs."""

    archive: str | None = None
    """The checksum of the archive that is shipped, with Trainyard's code."""
    commit: str | None = None
    """The first digits of the version of the DAG bundle, or of the commit of the git repository of the DAG's file."""
    is_changed: bool = False
    """Whether the folder of the DAG's file had changes that are not committed."""


class JobSpec(Document):
    """What a job is asked to do."""

    ENTRY: ClassVar[str]
    """The function that runs the job, as `module:name`."""
    RESULT: ClassVar[type[Result]]
    """What it returns."""
    HAS_HEARTBEATS: ClassVar[bool] = False
    """Whether it is a worker group, which detects by itself that it hangs."""
    task_key: TaskKey
    """The Airflow task that the job belongs to."""
    code: Code | None = None
    """The version of the user's code."""

    def references(self) -> Iterator[Reference]:
        """Yield the versions of datasets and models that the spec names."""
        yield from ()

    @classmethod
    def parse_result(cls, value: Any) -> Result:
        """Parse what the job has returned.

        Raises:
            pydantic.ValidationError: It is not a result of this job.
        """
        return cls.RESULT.model_validate(value)

    def place(self, uri: str) -> Self:
        """Return the spec as one that lies at `DIRECTORY/specs/TASK.json`, or `DIRECTORY/attempts/TASK/N.json`.

        Raises:
            TrainyardError: It is of another task.
        """
        folder, _, number = uri.rpartition("/")
        if folder.endswith(f"/attempts/{self.task_key.task}"):
            uri = f"{folder}.{number.rpartition('.')[2]}"
        return self.model_copy(update={"task_key": self.task_key.place(uri)})


class GroupSpec(JobSpec):
    """A job whose workers start together."""

    HAS_HEARTBEATS = True
    workers: Workers
    trackers: Trackers = ()
    """Where metrics go too: `tensorboard`, `mlflow`, or a dict of `name` and `uri` for another server than that of
    `mlflow_conn_id`: `["tensorboard", {"name": "mlflow", "uri": "http://mlflow:5000"}]`."""

    @property
    def min_workers(self) -> int:
        """The smallest number of workers to start with."""
        return self.workers if isinstance(self.workers, int) else self.workers[0]

    @property
    def max_workers(self) -> int:
        """The largest number of workers."""
        return self.workers if isinstance(self.workers, int) else self.workers[1]
