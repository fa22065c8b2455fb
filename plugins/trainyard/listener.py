"""Store the error of a failed Trainyard task, render the run's report, and end the application of a marked task.

Airflow calls these functions where the task ran, at each attempt, with its previous state, once it has stored the new
one; and in the API server when a user sets the state, without one. Airflow logs errors of listeners. Imports are local,
so that Airflow starts fast.
"""

from __future__ import annotations

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
        from trainyard.compat import mask_secrets
        from trainyard.schemas.runs.failure import Failure

        Failure(task_key=task_key, at=time.time(), error=mask_secrets(str(error or ""))).save()
        _render_report(task_key)


@hookimpl  # type: ignore[untyped-decorator]
def on_task_instance_success(previous_state: object, task_instance: Any) -> None:
    """Render the run's report, or end the application of a task that a user marks as successful."""
    if previous_state is None:
        _end_application(task_instance)
    task_key = _find_task_key(task_instance)
    if task_key and (_remove_failure(task_key) or _has_record(task_instance.task)):
        _render_report(task_key)


@hookimpl  # type: ignore[untyped-decorator]
def on_task_instance_skipped(previous_state: object, task_instance: Any) -> None:
    """Render the run's report, as after a rejected model, or end the application of a task that a user marks so."""
    if previous_state is None:
        _end_application(task_instance)
    task_key = _find_task_key(task_instance)
    if task_key and (_remove_failure(task_key) or _has_record(task_instance.task)):
        _render_report(task_key)


def _find_task_key(task_instance: Any) -> TaskKey | None:
    """Return the identity of a task of a Trainyard operator or sensor that ran in this process; None for any other.

    After other tasks nothing is imported.
    """
    task = getattr(task_instance, "task", None)
    if not any(base.__module__.startswith("trainyard.") for base in type(task).__mro__):
        return None
    from trainyard.hooks.trainyard import TrainyardHook
    from trainyard.jobs.task_instance import task_key_of

    hook = TrainyardHook(getattr(task, "conn_id", TrainyardHook.default_conn_name))
    return task_key_of(task_instance, hook.get_conn().storage)


def _has_record(task: object) -> bool:
    return bool(getattr(task, "HAS_RECORD", False))


def _remove_failure(task_key: TaskKey) -> bool:
    """Remove the failure of an earlier attempt, which no run record follows. Return whether there was one."""
    from trainyard.schemas.runs import failure

    return failure.remove(task_key)


def _render_report(task_key: TaskKey) -> None:
    from trainyard.report import render

    render.render_after(task_key)


def _end_application(task_instance: Any) -> None:
    from trainyard.triggers.marked_tasks import end_application

    end_application(task_instance)
