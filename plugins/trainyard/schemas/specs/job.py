"""What all job specs have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, model_validator

from trainyard.schemas.document import Document, Part
from trainyard.schemas.references import Reference
from trainyard.schemas.results import Result
from trainyard.schemas.specs.fields import MLflowServer, RegisteredModel, Workers, refuse_string
from trainyard.schemas.specs.task_key import TaskKey


class TrackerOptions(Part):
    """A place that metrics go to."""

    name: Literal["tensorboard", "mlflow"]
    """`tensorboard` writes event files to `tensorboard/TASK` in the run's directory; `mlflow` records a run in the
    experiment with the DAG's name."""
    uri: MLflowServer | None = None
    """The tracking server of `mlflow`, for example `http://mlflow:5000`. By default that of the operator's
    `mlflow_conn_id`."""
    registered_model_name: RegisteredModel | None = None
    """The registered model of `mlflow` that each training adds a version to. Its format `mlflow` is written, and copied
    to the server. Scripts have none."""

    @model_validator(mode="after")
    def _check_name(self) -> Self:
        for option, value in (("uri", self.uri), ("registered_model_name", self.registered_model_name)):
            if value and self.name != "mlflow":
                raise ValueError(f"{option} is of the server of 'mlflow', and {self.name!r} has none; remove it")
        return self


def _named(value: Any) -> Any:
    """Replace the name of a tracker by its default options."""
    return {"name": value} if isinstance(value, str) else value


def _refuse_named_twice(trackers: tuple[TrackerOptions, ...]) -> tuple[TrackerOptions, ...]:
    """Refuse equal trackers, which would double each point; several servers are none."""
    places = [(tracker.name, (tracker.uri or "").rstrip("/")) for tracker in trackers]
    for number, tracker in enumerate(trackers):
        if places[number] in places[:number]:
            server = f" at {tracker.uri!r}" if tracker.uri else ""
            raise ValueError(f"{tracker.name!r}{server} is named twice; remove one")
    return trackers


Tracker = Annotated[TrackerOptions, BeforeValidator(_named)]
"""The name of a tracker, or a dict of its options."""
Trackers = Annotated[tuple[Tracker, ...], refuse_string("tensorboard", "mlflow"), AfterValidator(_refuse_named_twice)]
"""A list of different trackers."""


class Code(Part):
    """The version of the user's code that a task runs."""

    archive: str | None = None
    """The checksum of the archive that is shipped, with Trainyard's code."""
    bundle_version: str | None = None
    """The version of the DAG bundle, if it has one."""
    commit: str | None = None
    """The commit of the git repository that has the DAG's file, where the bundle has no version."""
    is_changed: bool | None = None
    """Whether this repository had changes that were not committed; None if that is not known."""


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
    """Where metrics go too: `tensorboard`, `mlflow`, or a dict of `name`, `uri` for another server than that of
    `mlflow_conn_id`, and `registered_model_name` for the registered model that gets a version of each training:
    `["tensorboard", {"name": "mlflow", "uri": "http://mlflow:5000", "registered_model_name": "digits"}]`."""

    @property
    def min_workers(self) -> int:
        """The smallest number of workers to start with."""
        return self.workers if isinstance(self.workers, int) else self.workers[0]

    @property
    def max_workers(self) -> int:
        """The largest number of workers."""
        return self.workers if isinstance(self.workers, int) else self.workers[1]
