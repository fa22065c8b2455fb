"""Read the states of tasks from Airflow's database, as Airflow's own commands do. A task must not: it asks the API."""

from __future__ import annotations

from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select

from trainyard.schemas.specs.task_key import TaskKey


def read_state(task_key: TaskKey) -> str | None:
    """Return Airflow's state of a task, "" before its first one; None if Airflow has no such task."""
    query = select(TaskInstance.state).where(
        TaskInstance.dag_id == task_key.dag_id,
        TaskInstance.run_id == task_key.run_id,
        TaskInstance.task_id == task_key.task_id,
        TaskInstance.map_index == task_key.map_index,
    )
    with create_session() as session:
        row = session.execute(query).one_or_none()
    return None if row is None else str(row[0] or "")
