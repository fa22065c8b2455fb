"""What a backend can do: bring a plan's application on its way, log what became of it, and end it before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from airflow.triggers.base import BaseTrigger

from trainyard.log import Log
from trainyard.schemas.run_record import RunRecord


class Backend(Protocol):
    """One kind of cluster; an instance runs the application of one plan."""

    def run(self, log: Log) -> RunRecord | BaseTrigger:
        """The record that the application's driver wrote, or a trigger that fires when there may be one.

        Raises TrainyardError when the application ended without a record.
        """

    def kill(self) -> None:
        """End the application and every process of it; nothing to end is no error."""


@runtime_checkable
class DeferredBackend(Backend, Protocol):
    """One whose applications are waited for by a trigger. `pages` are addresses by the keys of links, once known."""

    pages: Mapping[str, str]

    def collect(self, event: Mapping[str, Any], log: Log) -> RunRecord | BaseTrigger:
        """The record of the application that the trigger's event tells of, or a trigger for one in its place.

        Raises TrainyardError as `run` does.
        """
