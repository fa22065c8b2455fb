"""Store the error of a failed Trainyard task, render the run's report, and end the application of a marked task.

Airflow calls these functions where the task ran, at each attempt, with its previous state, once it has stored the new
one; and in the API server when a user sets the state, without one. Airflow logs errors of listeners. Imports are local,
so that Airflow starts fast.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

if TYPE_CHECKING:
    from trainyard.schemas.specs.task_key import TaskKey


@hookimpl  # type: ignore[untyped-decorator]
def on_task_instance_failed(previous_state: object, task_instance: Any, error: object) -> None:
    """Store the failure, and render it into the run's report."""
    if previous_state is None:
        _end_application(task_instance)
    if task_key := _find_task_key(task_instance):
        from trainyard.schemas.failure import Failure

        Failure(task_key=task_key, at=time.time(), error=str(error or "")).save()
        _render_report(task_key)


@hookimpl  # type: ignore[untyped-decorator]
def on_task_instance_success(previous_state: object, task_instance: Any) -> None:
    """Render the run's report, or end the application of a task that a user marks as successful."""
    if previous_state is None:
        _end_application(task_instance)
    if task_key := _find_task_key(task_instance):
        _render_report(task_key)


@hookimpl  # type: ignore[untyped-decorator]
def on_task_instance_skipped(previous_state: object, task_instance: Any) -> None:
    """End the application of a task that a user marks as skipped."""
    if previous_state is None:
        _end_application(task_instance)


def _find_task_key(task_instance: Any) -> TaskKey | None:
    """Return the identity of a Trainyard task that ran in this process; None for any other task.

    Where no Trainyard operator was imported, none ran: after other tasks nothing is imported.
    """
    jobs = sys.modules.get("trainyard.jobs.operator")
    if jobs is None or not isinstance(task := getattr(task_instance, "task", None), jobs.JobOperator):
        return None
    from trainyard.hooks.trainyard import TrainyardHook
    from trainyard.jobs.task_instance import task_key_of

    return task_key_of(task_instance, TrainyardHook(task.conn_id).get_conn().storage)


def _render_report(task_key: TaskKey) -> None:
    from trainyard.report import render

    render.render_after(task_key)


def _end_application(task_instance: Any) -> None:
    from trainyard.triggers.marked_tasks import end_application

    end_application(task_instance)
