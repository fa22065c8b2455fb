"""What a job asks of its Airflow task instance: its identity, and Airflow's state of it."""

from __future__ import annotations

from typing import Any

from trainyard.planning.paths import run_directory
from trainyard.schemas.specs.task_key import TaskKey


def task_key_of(ti: Any, root: str) -> TaskKey:
    """Return the identity of a task instance; `root` is the URI of the storage root."""
    return TaskKey(
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=-1 if ti.map_index is None else ti.map_index,
        try_number=max(1, ti.try_number),  # `airflow tasks test` counts from 0
        first_try=max(1, ti.max_tries - (ti.task.retries or 0) + 1),  # Airflow raises max_tries when a task is cleared
        max_tries=max(0, ti.max_tries),
        directory=run_directory(root, ti.dag_id, ti.run_id),
    )


def is_running(ti: Any) -> bool:
    """Return whether Airflow's state of the task is still `running`: it may be marked or cleared meanwhile."""
    return read_state(ti, task_key_of(ti, "")) == "running"


def read_state(ti: Any, task_key: TaskKey) -> str | None:
    """Ask Airflow's API, by the task instance `ti` of this process, for the state of any task.

    Returns:
        The state, "" before the first one; None if Airflow has no such task.
    """
    states = ti.get_task_states(
        dag_id=task_key.dag_id, run_ids=[task_key.run_id], task_ids=[task_key.task_id], map_index=task_key.map_index
    )
    found = list(states.get(task_key.run_id, {}).values())
    return (found[0] or "") if found else None
