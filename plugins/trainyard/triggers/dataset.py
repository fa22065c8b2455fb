"""Watch the versions of a dataset."""

from __future__ import annotations

from typing import Any

from trainyard.files import uris
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.schemas.datasets import manifest
from trainyard.triggers.change import ChangeTrigger


class DatasetTrigger(ChangeTrigger):
    """Yield an event for each new version of a dataset: its `uri` and `version`.

    Args:
        dataset: The dataset: a name below the storage root, or a URI.
        since: Versions up to this one are not reported. A dataset that does not exist yet has version 0; one that was
            removed begins at 0 again.
        conn_id: The connection of type `trainyard`, with the storage.
        poll: The seconds between two looks.
    """

    FIELDS = ("dataset", "since", "conn_id", "poll")

    def __init__(
        self, dataset: str, since: int = 0, conn_id: str = TrainyardHook.default_conn_name, poll: float = 60.0
    ) -> None:
        super().__init__(poll)
        self.dataset, self.since, self.conn_id = dataset, since, conn_id

    def look(self) -> dict[str, Any] | None:
        """Return the URI and the newest version, None if it is not newer than `since`.

        A newest version below `since` is that of a dataset that was removed, and perhaps exported again: all of its
        versions are new.
        """
        uri = uris.resolve(TrainyardHook(self.conn_id).get_conn().storage, self.dataset)
        newest = max(manifest.list_versions(uri), default=0)
        if newest < self.since:
            self.since = 0
        return {"uri": uri, "version": newest} if newest > self.since else None

    def note(self, payload: dict[str, Any]) -> None:
        """Remember the version."""
        self.since = payload["version"]
