"""Find applications on YARN whose task has ended or was deleted: nothing collects their result, or ends them.

It happens when a deferred task is marked while no triggerer has its trigger, when a DAG is deleted, or when Airflow's
database is restored from a backup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from trainyard.errors import TrainyardError
from trainyard.log import Log
from trainyard.planning.paths import is_application_tag, storage_tag
from trainyard.schemas.owner import Owner, find_owner, list_tags, remove_owner
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.table import table
from trainyard.yarn.resource_manager import LIVE, Application, ResourceManager

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

    application: Application
    owner: Owner | None
    state: str | None
    verdict: Verdict


def list_live(manager: ResourceManager, root: str, airflow: str, read_state: StateReader) -> list[LiveApplication]:
    """Return the live applications of a storage root, oldest first.

    Args:
        manager: The ResourceManager.
        root: The storage root, a URI.
        airflow: The base URL of this Airflow. Tasks of another one are unknown here.
        read_state: Returns Airflow's state of a task. It is called after the applications were listed.
    """
    return [_judge(one, root, airflow, read_state) for one in manager.tagged(storage_tag(root), LIVE)]


def kill_orphans(manager: ResourceManager, applications: Sequence[LiveApplication], log: Log) -> list[LiveApplication]:
    """Kill the orphaned ones of some applications, and return them. One that YARN refuses to kill is logged."""
    killed = []
    for one in applications:
        if one.verdict != "orphaned":
            continue
        try:
            manager.kill(one.application.id)
        except TrainyardError as error:
            log(f"{one.application.id} cannot be killed: {error}")
            continue
        killed.append(one)
    return killed


def remove_stale_owners(
    root: str, applications: Sequence[LiveApplication], airflow: str, read_state: StateReader
) -> None:
    """Remove the owners of tags that none of the live `applications` has, and whose task has ended.

    A task that submits now has an owner too, before it has an application; it has not ended.
    """
    live = {tag for one in applications for tag in one.application.tags}
    for tag in list_tags(root):
        owner = _find_owner(root, [tag]) if tag not in live else None
        if owner and owner.airflow == airflow and _judge_state(read_state(owner.task_key), airflow) == "orphaned":
            remove_owner(root, tag)


def as_text(applications: Sequence[LiveApplication]) -> str:
    """Return a table of applications."""
    rows = [
        [one.application.id, one.application.state, one.application.queue, *_describe_task(one), one.verdict]
        for one in applications
    ]
    return table(["application", "state", "queue", "DAG", "run", "task", "task's state", ""], rows)


def _judge(application: Application, root: str, airflow: str, read_state: StateReader) -> LiveApplication:
    owner = _find_owner(root, filter(is_application_tag, sorted(application.tags)))
    if owner is None:
        return LiveApplication(application, None, None, "unknown owner")
    if owner.airflow != airflow:
        return LiveApplication(application, owner, None, "other Airflow")
    state = read_state(owner.task_key)
    return LiveApplication(application, owner, state, _judge_state(state, airflow))


def _find_owner(root: str, tags: Iterable[str]) -> Owner | None:
    try:
        return next(filter(None, (find_owner(root, tag) for tag in tags)), None)
    except TrainyardError:  # written by another release
        return None


def _judge_state(state: str | None, airflow: str) -> Verdict:
    if state is None and not airflow:
        return "unknown owner"  # it may be of another Airflow without a base URL
    return "orphaned" if state is None or state in ENDED else "in use"


def _describe_task(one: LiveApplication) -> list[str]:
    if one.owner is None:
        return ["-", "-", "-", "-"]
    key = one.owner.task_key
    known = "-" if one.verdict == "other Airflow" else "no such task" if one.state is None else one.state or "none"
    return [key.dag_id, key.run_id, key.task, known]
