"""Decide what to do when a task starts, so that it has at most one live application. Pure functions.

The state is in YARN (the applications with the task's tag) and in storage (the run record, which the driver writes as
its last act, and which names its application), never in an Airflow process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.schemas.run_record import RunRecord
from trainyard.yarn.resource_manager import Application


@dataclass(frozen=True)
class Submit:
    """Submit an application: none runs, and there is no result. `after` are those that have ended, oldest first."""

    after: tuple[Application, ...] = ()


@dataclass(frozen=True)
class Reattach:
    """Wait for an application of the task that runs; of several, the oldest."""

    application: Application


@dataclass(frozen=True)
class UseResult:
    """Use the record of an application that has succeeded."""

    record: RunRecord


Step = Submit | Reattach | UseResult


def decide_on_start(applications: Sequence[Application], record: RunRecord | None, superseded: str | None) -> Step:
    """Decide the next step of a task that starts.

    Args:
        applications: The applications with the task's tag that YARN still has, oldest first.
        record: The newest run record of the task. Its application may be older than a killed duplicate, or one that
            YARN has forgotten.
        superseded: The application whose result was used before the task was cleared. Clearing a task that succeeded
            means to run it again.
    """
    live = [application for application in applications if application.live]
    if live:
        return Reattach(live[0])
    ended = [application for application in applications if application.id != superseded]
    if record and record.status == "succeeded" and record.application != superseded:
        return UseResult(record)
    return Submit(after=tuple(ended))
