"""The interface of a backend: run the application of a plan, collect its result, kill it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from airflow.triggers.base import BaseTrigger

from trainyard.schemas.runs.run_record import RunRecord
from trainyard.text import Log
from trainyard.triggers.application import POLL_SECONDS


@dataclass(frozen=True)
class Waiting:
    """How a task waits for an application that outlives it.

    Attributes:
        poll_interval: The seconds between two requests for its state, at most.
        get_logs: Whether new lines of the driver's log are logged.
        cancel_on_kill: Whether the application ends when the task is cleared or marked.
    """

    poll_interval: float = POLL_SECONDS
    get_logs: bool = False
    cancel_on_kill: bool = True


class Backend(Protocol):
    """One kind of cluster. An instance runs the application of one plan."""

    def run(self, log: Log) -> RunRecord | BaseTrigger:
        """Submit the application.

        Returns:
            The record that the application's driver wrote, or a trigger that fires when the application has ended.

        Raises:
            TrainyardError: The application ended without a record.
        """

    def kill(self) -> None:
        """End the application that this instance runs, with all of its processes.

        It may be called at any moment of `run`, by a handler of a signal. What `run` starts later is ended too.
        """

    def kill_all(self) -> None:
        """End every application of the task, of all attempts: the task failed, and there is no next attempt."""


@runtime_checkable
class DeferredBackend(Backend, Protocol):
    """A backend that waits for its applications in a trigger.

    `pages` maps the keys of links (`trainyard.links`) to addresses, once they are known.
    """

    pages: Mapping[str, str]

    def collect(self, event: Mapping[str, Any], log: Log) -> RunRecord | BaseTrigger:
        """Return the record of the application in the trigger's event, or a trigger for its successor.

        Raises:
            TrainyardError: The application ended without a record.
        """
