"""Read from Airflow's database which applications are its own, as Airflow's commands do. A task must ask the API."""

from __future__ import annotations

from airflow.models.taskinstance import TaskInstance
from airflow.models.variable import Variable
from airflow.utils.session import create_session
from sqlalchemy import select

from trainyard.hooks import airflow_id
from trainyard.schemas.specs.task_key import TaskKey


def list_ids() -> frozenset[str]:
    """Return the identities of this Airflow, as `airflow_id.list_ids`; empty before its first application."""
    query = select(Variable.key).where(Variable.key.startswith(airflow_id.PREFIX, autoescape=True))
    with create_session() as session:
        return frozenset(session.scalars(query))


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
