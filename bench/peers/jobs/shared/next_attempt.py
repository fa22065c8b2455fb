"""Run the next attempt of the tasks whose process was killed, in the same run, as Airflow's scheduler does.

    python -m next_attempt DAG

The scheduler fails the attempt of a task without heartbeats (after five minutes, by default; here at once), and runs
the next one. `airflow dags test` cannot: it first deletes the run of its date, with what its tasks have stored.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

from airflow.models.dagrun import DagRun
from airflow.serialization.definitions.dag import SerializedDAG
from airflow.utils.cli import get_bagged_dag
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, State
from sqlalchemy import select


def main() -> int:
    (name,) = sys.argv[1:]
    dag = get_bagged_dag([], name)
    with create_session() as session:
        run = session.scalars(select(DagRun).where(DagRun.dag_id == name)).one()
        for task in run.get_task_instances(session=session):
            if task.state is not None and task.state not in State.finished:
                print(f"the attempt {task.try_number} of task {task.task_id!r} was {task.state}", flush=True)
                task.prepare_db_for_next_try(session)
                task.clear_next_method_args()
                task.state = State.UP_FOR_RETRY
        date = run.logical_date

    def get_run(*, dag: Any, session: Any, **_: Any) -> DagRun:
        found: DagRun = session.scalars(select(DagRun).where(DagRun.dag_id == name)).one()
        found.dag = dag
        return found

    keep_tasks = patch.object(SerializedDAG, "clear_dags")
    with keep_tasks, patch("airflow.models.dagrun.get_or_create_dagrun", get_run):
        return 0 if dag.test(logical_date=date).state == DagRunState.SUCCESS else 1


if __name__ == "__main__":
    sys.exit(main())
