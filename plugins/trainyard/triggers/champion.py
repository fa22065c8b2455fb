"""Watch which model is the champion."""

from __future__ import annotations

import math
from typing import Any

from trainyard.files import uris
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.schemas import model_artifact
from trainyard.triggers.change import ChangeTrigger


class ChampionTrigger(ChangeTrigger):
    """Yield an event when another model becomes the champion: its `uri`, `weights_sha256` and `metrics`.

    Args:
        champion: The champion: a name below the storage root, or a URI.
        other_than: The sha256 of the weights of the champion that is known, which is not reported.
        conn_id: The connection of type `trainyard`, with the storage.
        poll: The seconds between two looks.
    """

    FIELDS = ("champion", "other_than", "conn_id", "poll")

    def __init__(
        self,
        champion: str,
        other_than: str | None = None,
        conn_id: str = TrainyardHook.default_conn_name,
        poll: float = 60.0,
    ) -> None:
        super().__init__(poll)
        self.champion, self.other_than, self.conn_id = champion, other_than, conn_id

    def look(self) -> dict[str, Any] | None:
        """Return the champion, None if there is none, or if it is the one that is known.

        A metric that is not finite is None: JSON has no NaN.
        """
        uri = uris.resolve(TrainyardHook(self.conn_id).get_conn().storage, self.champion)
        if not model_artifact.exists(uri):
            return None
        champion = model_artifact.read_current(uri)
        if champion.weights_sha256 == self.other_than:
            return None
        metrics = {name: value if math.isfinite(value) else None for name, value in champion.metrics.items()}
        return {"uri": uri, "weights_sha256": champion.weights_sha256, "metrics": metrics}

    def note(self, payload: dict[str, Any]) -> None:
        """Remember the weights."""
        self.other_than = payload["weights_sha256"]
