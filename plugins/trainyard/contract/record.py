"""The run record: what became of each application of a run, written as its driver's last act.

`DIRECTORY/records/TASK.json` holds the newest try of a task. It, not the exit status of a client,
says whether a job succeeded.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from trainyard.contract import storage
from trainyard.contract.document import Document
from trainyard.contract.spec import Place


class RunRecord(Document):
    """One try of one task. `output` is what the job returned; `error` is addressed to the user."""

    KIND: ClassVar[str] = "run record"

    place: Place
    job: str
    application: str
    started_at: float
    seconds: float
    status: Literal["succeeded", "failed"]
    output: dict[str, Any] = {}
    error: str | None = None
    traceback: str | None = None

    def save(self) -> None:
        storage.replace(_uri(self.place.directory, self.place.task), self.to_json().encode())


def find(place: Place) -> RunRecord | None:
    """The record of exactly this try, or None when its driver did not get to write one."""
    record = newest(place)
    return record if record and record.place.try_number == place.try_number else None


def newest(place: Place) -> RunRecord | None:
    """The newest record of a task, of whichever try; None when no driver has written one yet."""
    uri = _uri(place.directory, place.task)
    return RunRecord.load(uri) if storage.exists(uri) else None


def take(record: RunRecord) -> None:
    """Note that the task has succeeded with this record: it is the result of no later run of the task."""
    storage.replace(_taken(record.place), record.application.encode())


def taken(place: Place) -> str | None:
    """The application whose record was last the task's result."""
    uri = _taken(place)
    return storage.read(uri).decode() if storage.exists(uri) else None


def read(directory: str) -> list[RunRecord]:
    """The records of a run, in the order in which the applications started."""
    root = storage.join(directory, "records")
    found = [RunRecord.load(storage.join(root, n)) for n in storage.names(root) if not n.startswith(".")]
    return sorted(found, key=lambda record: record.started_at)


def _taken(place: Place) -> str:
    return storage.join(place.directory, "taken", place.task)


def _uri(directory: str, task: str) -> str:
    return storage.join(directory, "records", f"{task}.json")
