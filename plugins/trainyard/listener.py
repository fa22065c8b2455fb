"""Store the error of a failed Trainyard task. Airflow calls it where the task ran, at each attempt."""

from __future__ import annotations

import time
from typing import Any

from airflow.listeners import hookimpl


@hookimpl  # type: ignore[untyped-decorator]
def on_task_instance_failed(task_instance: Any, error: object) -> None:
    """Store the failure, and render it into the run's report.

    Airflow logs errors of listeners. Imports are local, so that Airflow starts fast.
    """
    from trainyard.hooks.trainyard import TrainyardHook
    from trainyard.jobs.operator import JobOperator
    from trainyard.jobs.task_instance import task_key_of
    from trainyard.report import render
    from trainyard.schemas.failure import Failure

    task = getattr(task_instance, "task", None)
    if isinstance(task, JobOperator):
        task_key = task_key_of(task_instance, TrainyardHook(task.conn_id).get_conn().storage)
        Failure(task_key=task_key, at=time.time(), error=str(error or "")).save()
        render.render(task_key.directory)
