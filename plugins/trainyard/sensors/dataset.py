"""The sensor that waits for a version of a dataset."""

from __future__ import annotations

from typing import Any

from pydantic import NonNegativeInt

from trainyard.jobs.options import validation
from trainyard.jobs.options.base import Templated
from trainyard.jobs.options.common import ConnectionOptions, WaitOptions
from trainyard.schemas.specs.fields import Location
from trainyard.sensors.change import ChangeSensor
from trainyard.triggers.dataset import DatasetTrigger


class DatasetOptions(ConnectionOptions, WaitOptions):
    """The options of a DatasetSensor."""

    dataset: Location
    """The dataset: a name below the storage root, or a URI."""
    since: NonNegativeInt
    """The newest version that is known. With 0 the sensor waits until there is a dataset. A dataset whose newest
    version is lower was removed and exported again, and the sensor succeeds."""


class DatasetSensor(ChangeSensor):
    """Succeed when a dataset has a version after `since`, whoever writes it.

    Returns (XCom): the dataset's `uri`, and its newest `version`.
    """

    OPTIONS = DatasetOptions

    def __init__(
        self, *, dataset: str, since: Templated[int] = 0, conn_id: str = "trainyard_default", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        validation.check(self, DatasetOptions)

    def make_trigger(self, options: Any) -> DatasetTrigger:
        """Return the trigger that looks for versions."""
        return DatasetTrigger(options.dataset, options.since, options.conn_id, self.poke_interval)
