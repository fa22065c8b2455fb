"""End the application of a deferred task that a user marks, also while no triggerer runs its trigger.

The trigger does so as well. But no triggerer has it in the first second, or while none runs, and Airflow then removes
it. Airflow calls listeners where a task is marked: in the API server.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from trainyard.schemas.specs.task_key import TaskKey
from trainyard.triggers.application import ApplicationTrigger
from trainyard.yarn import cluster

KEY = "trainyard_ends_with_task"
"""The XCom key of the application that ends when its task is marked."""

_KILLERS = ThreadPoolExecutor(8, thread_name_prefix="kill-marked")
"""Threads for kills, which are repeated for minutes during a failover. A user may mark thousands of mapped tasks.
The API server ends after them."""
_logger = logging.getLogger(__name__)


def announce_application(ti: Any, trigger: ApplicationTrigger) -> None:
    """Push the application that a task will wait for to XCom, unless it outlives the task."""
    if trigger.cancel_on_kill:
        ti.xcom_push(key=KEY, value=trigger.application)


def end_application(task_instance: Any) -> Future[None] | None:
    """Start to kill the application of a task instance that was marked.

    Args:
        task_instance: Airflow's model of the task instance.

    Returns:
        What ends with the kill, None if the task has no application. Nothing has to wait for it: the ResourceManager
        may not answer for minutes.
    """
    application = _find_application(task_instance)
    if not application:
        return None
    key = TaskKey(
        dag_id=task_instance.dag_id, run_id=task_instance.run_id, task_id=task_instance.task_id,
        map_index=task_instance.map_index, directory="",
    )  # fmt: skip
    return _KILLERS.submit(_kill, application, f"{key.dag_id}.{key.task}")


def _kill(application: str, name: str) -> None:
    """Kill the application of a task: any author of a DAG can write an XCom, and this is the API server's user."""
    try:
        cluster.kill_named(application, name)
    except Exception as error:
        _logger.error(
            "%s, whose task was marked, may still run: %s. `trainyard app reap --yes` ends it.", application, error
        )


def _find_application(task_instance: Any) -> str | None:
    """Return the application that the newest attempt of a task has announced, from Airflow's database."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    query = XComModel.get_many(
        run_id=task_instance.run_id, key=KEY, task_ids=task_instance.task_id, dag_ids=task_instance.dag_id,
        map_indexes=task_instance.map_index, limit=1,
    )  # fmt: skip
    with create_session(scoped=False) as session:
        found = session.scalars(query).first()
        return found and str(XComModel.deserialize_value(found))
