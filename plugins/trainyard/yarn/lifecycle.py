"""Decide what to do when a task starts, so that it has at most one live application, and when it ended. Pure functions.

The state is in YARN (the applications with the task's tag) and in storage (the run record, which the driver writes as
its last act, and which names its application), never in an Airflow process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.schemas.runs.run_record import RunRecord
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


@dataclass(frozen=True)
class StartAgain:
    """Start as if the application had not been there: it was killed with the earlier attempt that waited for it."""


@dataclass(frozen=True)
class Explain:
    """Find the cause of a failure; `record` is None if the driver wrote none."""

    record: RunRecord | None


@dataclass(frozen=True)
class GiveUp:
    """Fail without the status of the application, which may still run; `reason` says why there is none."""

    reason: str


Step = Submit | Reattach | UseResult
End = Reattach | UseResult | StartAgain | Explain | GiveUp


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


def decide_on_end(
    application: Application | None, record: RunRecord | None, no_answer: str | None, is_of_earlier: bool, killed: bool
) -> End:
    """Decide the next step of a task whose trigger says that its application has ended.

    Args:
        application: The application, None if YARN does not have it, or does not answer.
        record: The run record of the application, None if its driver has written none.
        no_answer: Why YARN does not answer, None if it does.
        is_of_earlier: Whether an earlier attempt has submitted it. A task that is cleared starts again while its
            application runs, and reattaches to it; then the trigger of the cleared attempt kills that application.
        killed: Whether this attempt was killed.
    """
    if application and application.live:
        return Reattach(application)
    if record:
        return UseResult(record) if record.status == "succeeded" else Explain(record)
    if application and application.state == "KILLED" and is_of_earlier and not killed:
        return StartAgain()
    return GiveUp(no_answer) if no_answer else Explain(None)
