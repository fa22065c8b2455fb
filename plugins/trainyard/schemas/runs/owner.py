"""The owner of a submission: the task that submitted an application, so that an application on YARN leads to its task.

`ROOT/owners/SUBMISSION.json` exists from before an application is submitted until its end was noticed. SUBMISSION is
the YARN tag of this application alone.
"""

from __future__ import annotations

from typing import ClassVar, Self

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.schemas.document import Document
from trainyard.schemas.specs.task_key import TaskKey


class Owner(Document):
    """The task that submitted an application."""

    KIND: ClassVar[str] = "owner"

    task_key: TaskKey
    """The task."""
    airflow: str = ""
    """The identity of its Airflow, "" if that could not be determined."""

    def place(self, uri: str) -> Self:
        """Return the document as one that lies at `ROOT/owners/SUBMISSION.json`: the run is below this root.

        Raises:
            TrainyardError: It names no directory of a run.
        """
        *_, dag, run = "", *self.task_key.directory.split("/")
        if not dag or not run:
            raise TrainyardError(f"{uri} names no directory of a run: {self.task_key.directory!r}.")
        directory = uris.join(uri.rsplit("/", 2)[0], "runs", dag, run)
        return self.model_copy(update={"task_key": self.task_key.model_copy(update={"directory": directory})})

    def save(self, root: str, submission: str) -> None:
        """Store the owner of a submission below the storage root."""
        storage.replace(owner_uri(root, submission), self.to_json().encode())


def find_owner(root: str, submission: str) -> Owner | None:
    """Return the owner of a submission; None if there is no record of it."""
    uri = owner_uri(root, submission)
    return Owner.load(uri) if storage.exists(uri) else None


def list_submissions(root: str) -> list[str]:
    """Return the submissions that have an owner record."""
    names = storage.list_names(uris.join(root, "owners"))
    return [name.removesuffix(".json") for name in names if not name.startswith(".")]


def remove_owner(root: str, submission: str) -> None:
    """Remove the owner record of a submission."""
    storage.remove(owner_uri(root, submission))


def owner_uri(root: str, submission: str) -> str:
    """Return where the owner of a submission is stored."""
    return uris.join(root, "owners", f"{submission}.json")
