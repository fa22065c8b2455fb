"""The run record: the outcome of a task, written by the driver of its application as its last act.

A task that runs no application, such as a promotion, writes its own.

`DIRECTORY/records/TASK.json` holds the newest attempt of a task. This record, not the exit status of a client, decides
whether a job succeeded. `DIRECTORY/results/TASK` names the application whose record was last used as the task's result.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import ConfigDict, Field, ValidationError, ValidationInfo, field_serializer, field_validator

from trainyard.files import storage, uris
from trainyard.schemas.document import Document, name_non_finite
from trainyard.schemas.results import WITHOUT_JOB, Result
from trainyard.schemas.specs import SPECS
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.types import ApplicationId, ErrorText
from trainyard.schemas.validation.complaints import complaints

_USED_BYTES = 1 << 12


class RunRecord(Document):
    """The outcome of one attempt of a task."""

    KIND: ClassVar[str] = "run record"
    model_config = ConfigDict(serialize_by_alias=True)

    task_key: TaskKey
    """The attempt."""
    job: str
    """The kind of job, for example "train"; or of task, for example "promote"."""
    application: ApplicationId
    """The id of the application; "" for a task that runs none."""
    started_at: float
    """When the driver, or the task, started, in seconds since the epoch."""
    seconds: float
    """How long it ran."""
    status: Literal["succeeded", "failed"]
    """Whether the job succeeded."""
    result: Result | None = Field(default=None, alias="output", validate_default=True)
    """What the job returned, stored as `output`; None after a failure."""
    error: ErrorText | None = None
    """The error, addressed to the user; None after success."""
    traceback: ErrorText | None = None
    """The end of the error's traceback; None for an error that is for the user."""

    def place(self, uri: str) -> Self:
        """Return the document as one that lies at `uri`; see `TaskKey.place`."""
        return self.model_copy(update={"task_key": self.task_key.place(uri)})

    @field_validator("result", mode="before")
    @classmethod
    def _parse_result(cls, value: Any, fields: ValidationInfo) -> Result | None:
        """Parse what the job returned, as its spec names it. A failed job has returned nothing."""
        if fields.data.get("status") != "succeeded":
            return None
        job = fields.data.get("job")
        spec, other = SPECS.get(f"{job} spec"), WITHOUT_JOB.get(str(job))
        try:
            if spec:
                return spec.parse_result(value)
            if other:
                return other.model_validate(value)
        except ValidationError as error:
            raise ValueError(complaints(error)) from None
        raise ValueError(f"there is no job of the kind {job!r}")

    @field_serializer("result")
    def _dump_result(self, result: Result | None) -> dict[str, Any]:
        return name_non_finite(result.model_dump(mode="json", exclude_unset=True)) if result else {}

    @property
    def output(self) -> dict[str, Any]:
        """The result as Airflow stores it in XCom; empty after a failure."""
        return self.result.to_xcom() if self.result else {}

    def save(self) -> None:
        """Store the record, replacing the one of an earlier attempt."""
        storage.replace(_uri(self.task_key.directory, self.task_key.task), self.to_json().encode())


def find_record(task_key: TaskKey) -> RunRecord | None:
    """Return the record of exactly this attempt, or None if its driver has not written one."""
    record = read_latest(task_key)
    return record if record and record.task_key.try_number == task_key.try_number else None


def read_latest(task_key: TaskKey) -> RunRecord | None:
    """Return the newest record of a task, of any attempt, or None if no driver has written one."""
    uri = _uri(task_key.directory, task_key.task)
    return RunRecord.load(uri) if storage.exists(uri) else None


def read_run(directory: str, unreadable: dict[str, str] | None = None) -> list[RunRecord]:
    """Return the records of a run, in the order in which the applications started.

    Args:
        directory: The run's directory.
        unreadable: Where to note why a record cannot be read; None raises the error.
    """
    records = RunRecord.load_all(uris.join(directory, "records"), unreadable)
    return sorted(records, key=lambda record: record.started_at)


def mark_used(task_key: TaskKey, record: RunRecord) -> None:
    """Note that this attempt uses `record` as the task's result."""
    used = f"{record.application}\n{task_key.try_number}\n{task_key.max_tries}"
    storage.replace(_used_uri(task_key), used.encode())


def used_application(task_key: TaskKey) -> str | None:
    """Return the application whose record was last used as the task's result."""
    return _last_used(task_key).application


def last_attempt(record: RunRecord) -> int:
    """Return the last attempt that the record belongs to: the one that wrote it, or a later one that used it."""
    used = _last_used(record.task_key)
    return max(record.task_key.try_number, used.attempt if used.application == record.application else 0)


def superseded_application(task_key: TaskKey) -> str | None:
    """Return the application whose result was used before the task was cleared, so that it must not be used again.

    None if the task was not cleared since: then the attempt ended before Airflow stored its result. `first_try` alone
    would not show that if the DAG's file has other retries now than when the task was cleared.
    """
    used = _last_used(task_key)
    was_cleared = task_key.first_try > used.attempt or task_key.max_tries != used.max_tries
    return used.application if was_cleared or task_key.try_number <= used.attempt else None


class _Used(NamedTuple):
    """The application whose record an attempt used as the task's result, and Airflow's `max_tries` then."""

    application: str | None = None
    attempt: int = 0
    max_tries: int = 0


def _last_used(task_key: TaskKey) -> _Used:
    uri = _used_uri(task_key)
    if not storage.exists(uri):
        return _Used()
    application, *numbers = storage.read(uri, _USED_BYTES).decode().split("\n")
    return _Used(application, *map(int, numbers))


def _used_uri(task_key: TaskKey) -> str:
    return uris.join(task_key.directory, "results", task_key.task)


def _uri(directory: str, task: str) -> str:
    return uris.join(directory, "records", f"{task}.json")
