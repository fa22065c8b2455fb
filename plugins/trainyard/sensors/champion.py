"""The sensor that waits for another champion."""

from __future__ import annotations

from typing import Any

from trainyard.jobs.options import validation
from trainyard.jobs.options.common import ConnectionOptions, Name, WaitOptions
from trainyard.schemas.specs.fields import Location
from trainyard.sensors.change import ChangeSensor
from trainyard.triggers.champion import ChampionTrigger


class ChampionOptions(ConnectionOptions, WaitOptions):
    """The options of a ChampionSensor."""

    champion: Location
    """The champion: a name below the storage root, or a URI."""
    other_than: Name | None
    """The `weights_sha256` of the champion that is known. Without it the sensor waits until there is one."""


class ChampionSensor(ChangeSensor):
    """Succeed when there is a champion other than the one that is known.

    Returns (XCom): the champion's `uri`, its `weights_sha256` and `metrics`.
    """

    OPTIONS = ChampionOptions

    def __init__(
        self, *, champion: str, other_than: str | None = None, conn_id: str = "trainyard_default", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        validation.check(self, ChampionOptions)

    def make_trigger(self, options: Any) -> ChampionTrigger:
        """Return the trigger that looks at the champion."""
        return ChampionTrigger(options.champion, options.other_than, options.conn_id, self.poke_interval)
