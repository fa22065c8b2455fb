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


def take(place: Place, record: RunRecord) -> None:
    """Note that the try at `place` has `record` as its result."""
    storage.replace(_taken(place), f"{record.application}\n{place.try_number}".encode())


def taken(place: Place) -> str | None:
    """The application whose record was last a result of the task's."""
    application, _ = _last_taken(place)
    return application


def spent(place: Place) -> str | None:
    """As `taken`, unless the task was not cleared since: then that try died before Airflow knew of its result."""
    application, by = _last_taken(place)
    return None if place.first_try <= by < place.try_number else application


def read(directory: str) -> list[RunRecord]:
    """The records of a run, in the order in which the applications started."""
    root = storage.join(directory, "records")
    found = [RunRecord.load(storage.join(root, n)) for n in storage.names(root) if not n.startswith(".")]
    return sorted(found, key=lambda record: record.started_at)


def _last_taken(place: Place) -> tuple[str | None, int]:
    """The application, and the try that took it."""
    uri = _taken(place)
    if not storage.exists(uri):
        return None, 0
    application, by = storage.read(uri).decode().split("\n")
    return application, int(by)


def _taken(place: Place) -> str:
    return storage.join(place.directory, "taken", place.task)


def _uri(directory: str, task: str) -> str:
    return storage.join(directory, "records", f"{task}.json")
