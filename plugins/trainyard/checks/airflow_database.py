"""Read from Airflow's database which applications are its own, as Airflow's commands do. A task must ask the API."""

from __future__ import annotations

from airflow.jobs.job import Job, JobState
from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance
from airflow.models.variable import Variable
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, State
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


def is_triggerer_running() -> bool:
    """Return whether a triggerer has sent a heartbeat lately, as `airflow jobs check` does."""
    running = Job.job_type == "TriggererJob", Job.state == JobState.RUNNING
    newest = select(Job).where(*running).order_by(Job.latest_heartbeat.desc()).limit(100)
    with create_session() as session:
        return any(job.is_alive() for job in session.scalars(newest))


def list_active_runs() -> list[tuple[str, str]]:
    """Return the DAG and the run of each DAG run that has not ended, or has a task that has not."""
    runs = select(DagRun.dag_id, DagRun.run_id).where(DagRun.state.in_([DagRunState.QUEUED, DagRunState.RUNNING]))
    unfinished = [state for state in State.unfinished if state]
    tasks = select(TaskInstance.dag_id, TaskInstance.run_id).where(TaskInstance.state.in_(unfinished))
    with create_session() as session:
        return sorted({(dag_id, run_id) for query in (runs, tasks) for dag_id, run_id in session.execute(query)})
