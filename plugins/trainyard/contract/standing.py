"""The standing of a gang: where each of its ranks is, as the driver heard last.

`DIRECTORY/standing/TASK.json` is replaced every few seconds while the gang runs.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import NonNegativeInt

from trainyard.contract import storage
from trainyard.contract.document import Document, Part
from trainyard.contract.spec import Place


class RankStanding(Part):
    """What a rank is doing: `step` global batches of `epoch` (counted from 1) are behind it."""

    rank: NonNegativeInt
    host: str
    phase: str
    epoch: int
    step: int


class Standing(Document):
    """The ranks of the gang of a task, at `at` seconds since the epoch; those that have not been heard are left out."""

    KIND: ClassVar[str] = "standing"

    place: Place
    at: float
    ranks: tuple[RankStanding, ...]

    def save(self) -> None:
        storage.replace(_uri(self.place), self.to_json().encode())


def newest(place: Place) -> Standing | None:
    """The standing of this try of a task, None when its gang has told of none yet."""
    uri = _uri(place)
    found = Standing.load(uri) if storage.exists(uri) else None
    return found if found and found.place.try_number == place.try_number else None


def _uri(place: Place) -> str:
    return storage.join(place.directory, "standing", f"{place.task}.json")
