"""The run record: what became of each application of a run, written as its driver's last act.

`DIRECTORY/records/TASK.json` holds the newest try of a task. It, not the exit status of a client,
says whether a job succeeded.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from trainyard import storage
from trainyard.schemas.document import Document
from trainyard.schemas.specs.task_key import TaskKey


class RunRecord(Document):
    """One try of one task. `output` is what the job returned; `error` is addressed to the user."""

    KIND: ClassVar[str] = "run record"

    task_key: TaskKey
    job: str
    application: str
    started_at: float
    seconds: float
    status: Literal["succeeded", "failed"]
    output: dict[str, Any] = {}
    error: str | None = None
    traceback: str | None = None

    def save(self) -> None:
        storage.replace(_uri(self.task_key.directory, self.task_key.task), self.to_json().encode())


def find_record(task_key: TaskKey) -> RunRecord | None:
    """The record of exactly this try, or None when its driver did not get to write one."""
    record = read_latest(task_key)
    return record if record and record.task_key.try_number == task_key.try_number else None


def read_latest(task_key: TaskKey) -> RunRecord | None:
    """The newest record of a task, of whichever try; None when no driver has written one yet."""
    uri = _uri(task_key.directory, task_key.task)
    return RunRecord.load(uri) if storage.exists(uri) else None


def mark_used(task_key: TaskKey, record: RunRecord) -> None:
    """Note that the try at `place` has `record` as its result."""
    storage.replace(_used_uri(task_key), f"{record.application}\n{task_key.try_number}".encode())


def used_application(task_key: TaskKey) -> str | None:
    """The application whose record was last a result of the task's."""
    application, _ = _last_used(task_key)
    return application


def superseded_application(task_key: TaskKey) -> str | None:
    """As `taken`, unless the task was not cleared since: then that try died before Airflow knew of its result."""
    application, by = _last_used(task_key)
    return None if task_key.first_try <= by < task_key.try_number else application


def read_run(directory: str) -> list[RunRecord]:
    """The records of a run, in the order in which the applications started."""
    root = storage.join(directory, "records")
    found = [RunRecord.load(storage.join(root, n)) for n in storage.list_names(root) if not n.startswith(".")]
    return sorted(found, key=lambda record: record.started_at)


def _last_used(task_key: TaskKey) -> tuple[str | None, int]:
    """The application, and the try that took it."""
    uri = _used_uri(task_key)
    if not storage.exists(uri):
        return None, 0
    application, by = storage.read(uri).decode().split("\n")
    return application, int(by)


def _used_uri(task_key: TaskKey) -> str:
    return storage.join(task_key.directory, "results", task_key.task)


def _uri(directory: str, task: str) -> str:
    return storage.join(directory, "records", f"{task}.json")
