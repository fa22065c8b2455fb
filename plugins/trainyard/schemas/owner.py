"""The owner of a tag: the task whose applications have it, so that an application on YARN leads to its task.

`ROOT/owners/TAG.json` exists from before an application is submitted until its end was noticed.
"""

from __future__ import annotations

from typing import ClassVar

from trainyard import storage
from trainyard.schemas.document import Document
from trainyard.schemas.specs.task_key import TaskKey


class Owner(Document):
    """The task whose applications have a tag.

    Attributes:
        task_key: The task.
        airflow: The base URL of its Airflow, "" if that is not configured.
    """

    KIND: ClassVar[str] = "owner"

    task_key: TaskKey
    airflow: str = ""

    def save(self, root: str, tag: str) -> None:
        """Store the owner of `tag` below the storage root."""
        storage.replace(_uri(root, tag), self.to_json().encode())


def find_owner(root: str, tag: str) -> Owner | None:
    """Return the owner of a tag; None if there is no record of it."""
    uri = _uri(root, tag)
    return Owner.load(uri) if storage.exists(uri) else None


def list_tags(root: str) -> list[str]:
    """Return the tags that have an owner record."""
    names = storage.list_names(storage.join(root, "owners"))
    return [name.removesuffix(".json") for name in names if not name.startswith(".")]


def remove_owner(root: str, tag: str) -> None:
    """Remove the owner record of a tag."""
    storage.remove(_uri(root, tag))


def _uri(root: str, tag: str) -> str:
    return storage.join(root, "owners", f"{tag}.json")
