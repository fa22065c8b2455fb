"""Find applications on YARN whose task has ended or was deleted: nothing collects their result, or ends them.

It happens when a DAG is deleted while no triggerer has the trigger, when Airflow's database is restored from a backup,
or when a deferred task is marked while the ResourceManager does not answer the API server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from trainyard.clusters.base import Applications, RunningApplication
from trainyard.errors import TrainyardError
from trainyard.planning.paths import is_submission_tag, storage_tag
from trainyard.schemas.runs.owner import Owner, find_owner, list_submissions
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.text import Log, table

ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
"""Airflow's states of a task that does not run again by itself."""

StateReader = Callable[[TaskKey], str | None]
"""Returns Airflow's state of a task, "" before its first one; None if Airflow has no such task."""

Verdict = Literal["in use", "orphaned", "other Airflow", "unknown owner"]


@dataclass(frozen=True)
class LiveApplication:
    """An application that has not ended, and what Airflow knows of its task.

    Attributes:
        application: The application.
        owner: The task that submitted it, None if there is no record of it.
        state: Airflow's state of that task.
        verdict: Whether the task still waits for it.
    """

    application: RunningApplication
    owner: Owner | None
    state: str | None
    verdict: Verdict


def list_live(
    applications: Applications, root: str, airflow: Collection[str], read_state: StateReader
) -> list[LiveApplication]:
    """Return the live applications of a storage root, oldest first.

    Args:
        applications: The applications of the cluster.
        root: The storage root, a URI.
        airflow: The identities of this Airflow. Tasks of another one are unknown here.
        read_state: Returns Airflow's state of a task. It is called after the applications were listed.
    """
    return [_judge(one, root, airflow, read_state) for one in applications.list_live(storage_tag(root))]


def kill_orphans(
    cluster: Applications, applications: Sequence[LiveApplication], log: Log
) -> tuple[list[str], list[str]]:
    """Kill the orphaned ones of some applications. One that cannot be killed is logged.

    Returns:
        The ids of those that were killed, and of those that were not.
    """
    killed, refused = [], []
    for id in [one.application.id for one in applications if one.verdict == "orphaned"]:
        try:
            cluster.kill(id)
            killed.append(id)
        except TrainyardError as error:
            log(f"{id} cannot be killed: {error}")
            refused.append(id)
    return killed, refused


def list_stale_owners(
    root: str, applications: Sequence[LiveApplication], airflow: Collection[str], read_state: StateReader
) -> list[str]:
    """Return the submissions of which none of the live `applications` is, and whose task has ended.

    A task that submits now has an owner too, before it has an application; it has not ended.
    """
    live = {tag for one in applications for tag in one.application.tags}
    stale = []
    for submission in list_submissions(root):
        owner = _find_owner(root, submission) if submission not in live else None
        if owner and owner.airflow in airflow and is_over(read_state(owner.task_key)):
            stale.append(submission)
    return stale


def as_text(applications: Sequence[LiveApplication], root: str) -> str:
    """Return a table of the applications of a storage root, and why some of them are never ended."""
    rows = [
        [one.application.id, one.application.state, one.application.queue, *_describe_task(one), one.verdict]
        for one in applications
    ]
    listed = table(["application", "state", "queue", "DAG", "run", "task", "task's state", ""], rows)
    return "\n\n".join([listed, *_describe_foreign(applications, root)])


def _judge(
    application: RunningApplication, root: str, airflow: Collection[str], read_state: StateReader
) -> LiveApplication:
    submission = next(filter(is_submission_tag, application.tags), None)
    owner = _find_owner(root, submission) if submission else None
    if owner is None or not owner.airflow:
        return LiveApplication(application, owner, None, "unknown owner")
    if owner.airflow not in airflow:
        return LiveApplication(application, owner, None, "other Airflow")
    state = read_state(owner.task_key)
    return LiveApplication(application, owner, state, "orphaned" if is_over(state) else "in use")


def _find_owner(root: str, submission: str) -> Owner | None:
    try:
        return find_owner(root, submission)
    except TrainyardError:  # written by another release
        return None


def is_over(state: str | None) -> bool:
    """Return whether a task has ended, or does not exist."""
    return state is None or state in ENDED


def _describe_task(one: LiveApplication) -> list[str]:
    if one.owner is None:
        return ["-", "-", "-", "-"]
    key = one.owner.task_key
    is_ours = one.verdict in ("in use", "orphaned")
    known = "-" if not is_ours else "no such task" if one.state is None else one.state or "none"
    return [key.dag_id, key.run_id, key.task, known]


def _describe_foreign(applications: Sequence[LiveApplication], root: str) -> list[str]:
    """Return how many applications are not of this Airflow, or may not be, and what to do about them."""
    verdicts = [one.verdict for one in applications]
    lines = []
    if count := verdicts.count("other Airflow"):
        lines.append(
            f"{count} of another Airflow: its Variable trainyard_airflow_... is not in this Airflow's database. Run "
            "`trainyard app reap` there. If the database was replaced, add the Variable that the record in "
            f"{root}/owners names."
        )
    if count := verdicts.count("unknown owner"):
        lines.append(
            f"{count} of an unknown owner: {root}/owners has no record, one of another release, or one without an "
            "Airflow, because the task got no answer of Airflow's API. If no task waits for it, end it with `yarn "
            "application -kill ID`."
        )
    return lines
