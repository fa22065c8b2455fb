"""One application a task, whatever dies: what to do on each start of a task. Pure functions.

What counts lies in YARN (the applications with the task's tag) and in storage (the run record, which
the job's driver writes as its last act, and which names its application), never in an Airflow process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.schemas.run_record import RunRecord
from trainyard.yarn.resource_manager import Application


@dataclass(frozen=True)
class Submit:
    """Nothing of the task runs, and nothing is to be had: submit it. `after` is what failed before, if anything."""

    after: Application | None = None


@dataclass(frozen=True)
class Reattach:
    """An application of the task runs: wait for it. Of several it is the oldest."""

    application: Application


@dataclass(frozen=True)
class UseResult:
    """The work is done: its record is the result."""

    record: RunRecord


Step = Submit | Reattach | UseResult


def decide_on_start(applications: Sequence[Application], record: RunRecord | None, superseded: str | None) -> Step:
    """The step for a task that starts, of its applications (oldest first) and its newest record.

    `superseded` is the application whose result was the task's before it was cleared: who clears a task that
    succeeded wants its work done anew.
    """
    live = [application for application in applications if application.live]
    if live:
        return Reattach(live[0])
    ended = [application for application in applications if application.id != superseded]
    newest = ended[-1] if ended else None
    if record and record.status == "succeeded" and newest and record.application == newest.id:
        return UseResult(record)
    return Submit(after=newest)
