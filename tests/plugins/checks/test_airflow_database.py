"""What is read of Airflow's database: the identity that its tasks create, and the states of tasks."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.plugins.conftest import Run
from trainyard.hooks import airflow_id

pytestmark = pytest.mark.airflow

DAG = """
from airflow.sdk import DAG, task
from trainyard.hooks import airflow_id

@task
def print_ids():
    print("ids:", airflow_id.get_id(), airflow_id.get_id(), *airflow_id.list_ids())

@task(retries=0)
def divide(by):
    return 1 / by

with DAG("identity", schedule=None):
    print_ids() >> divide.expand(by=[1, 0])
"""


READ = """
import json, sys
from trainyard.checks import airflow_database as database
from trainyard.schemas.specs.task_key import TaskKey

def state(task_id, map_index=-1):
    key = TaskKey(dag_id="identity", run_id=sys.argv[1], task_id=task_id, map_index=map_index, directory="file:///s")
    return database.read_state(key)

states = [state("print_ids"), state("divide", 0), state("divide", 1), state("divide", 2), state("deleted")]
print(json.dumps({"ids": list(database.list_ids()), "states": states}))
"""


@pytest.mark.full
def test_tasks_and_commands_share_one_identity_and_the_states_of_tasks(
    python: Run, dag_file: Path, airflow_database: Path
) -> None:
    dag_file.write_text(DAG)
    ran = python("-m", "airflow", "dags", "test", "identity")
    (printed,) = (line.partition("ids: ")[2].split() for line in ran.stdout.splitlines() if "ids: " in line)
    with sqlite3.connect(airflow_database) as connection:
        (run_id,) = connection.execute("select run_id from dag_run where dag_id = 'identity'").fetchone()
    read = json.loads(python("-c", READ, run_id).stdout.splitlines()[-1])
    assert len(printed) == 3 and set(read["ids"]) == set(printed), ran.stdout
    assert read["states"] == ["success", "success", "failed", None, None]


BEAT = """
from datetime import timedelta
from airflow.jobs.job import Job, JobState
from airflow.sdk import timezone
from airflow.utils.session import create_session
from trainyard.checks.airflow_database import is_triggerer_running

answers = [is_triggerer_running()]
for job_type, seconds in (("SchedulerJob", 0), ("TriggererJob", 3600), ("TriggererJob", 0)):
    with create_session() as session:
        beat = timezone.utcnow() - timedelta(seconds=seconds)
        session.add(Job(job_type=job_type, state=JobState.RUNNING, latest_heartbeat=beat))
    answers.append(is_triggerer_running())
print("answers:", *answers)
"""


def test_only_a_triggerer_with_a_recent_heartbeat_runs(python: Run, airflow_database: Path) -> None:
    assert "answers: False False False True" in python("-c", BEAT).stdout


def test_without_a_task_there_is_no_identity() -> None:
    assert airflow_id.get_id() == ""
