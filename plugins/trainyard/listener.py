"""Store the error of a failed Trainyard task, and end the application of one that a user marks.

Airflow calls these functions where the task ran, at each attempt, with its previous state; and in the API server when a
user sets the state, without one. Airflow logs errors of listeners. Imports are local, so that Airflow starts fast.
"""

from __future__ import annotations

import time
from typing import Any

from airflow.listeners import hookimpl


@hookimpl  # type: ignore[untyped-decorator]
def on_task_instance_failed(previous_state: object, task_instance: Any, error: object) -> None:
    """Store the failure, and render it into the run's report."""
    from trainyard.hooks.trainyard import TrainyardHook
    from trainyard.jobs.operator import JobOperator
    from trainyard.jobs.task_instance import task_key_of
    from trainyard.report import render
    from trainyard.schemas.failure import Failure

    if previous_state is None:
        _end_application(task_instance)
    task = getattr(task_instance, "task", None)
    if isinstance(task, JobOperator):
        task_key = task_key_of(task_instance, TrainyardHook(task.conn_id).get_conn().storage)
        Failure(task_key=task_key, at=time.time(), error=str(error or "")).save()
        render.render(task_key.directory)


@hookimpl  # type: ignore[untyped-decorator]
def on_task_instance_success(previous_state: object, task_instance: Any) -> None:
    """End the application of a task that a user marks as successful."""
    if previous_state is None:
        _end_application(task_instance)


@hookimpl  # type: ignore[untyped-decorator]
def on_task_instance_skipped(previous_state: object, task_instance: Any) -> None:
    """End the application of a task that a user marks as skipped."""
    if previous_state is None:
        _end_application(task_instance)


def _end_application(task_instance: Any) -> None:
    from trainyard.triggers.marked_tasks import end_application

    end_application(task_instance)
