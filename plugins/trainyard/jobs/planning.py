"""Build the plan of a job with the user's code, the Spark connection and the local Spark installation."""

from __future__ import annotations

from pathlib import Path

from trainyard.hooks.spark import spark_connection
from trainyard.jobs.locations import recipes_of_models, user_code
from trainyard.planning.archive import DRIVER, build_archive
from trainyard.planning.job import Job, Runtime
from trainyard.planning.plan import Plan, build_plan
from trainyard.planning.runtime import airflow_home, spark_environment


def plan_job(job: Job, dag_file: Path, spark_conn_id: str) -> Plan:
    """Build the plan of a job.

    Args:
        job: The job. Fields of its spec may still be templates.
        dag_file: The file of the DAG, beside which user code is searched for.
        spark_conn_id: The Spark connection.

    Raises:
        TrainyardError: User code is missing, or the cluster can never run the application.
    """
    paths = [*user_code(job.spec).values(), *recipes_of_models(job.spec)]
    archive = build_archive(paths, dag_file, airflow_home() / "trainyard-code")
    runtime = Runtime(str(DRIVER), (str(archive),), spark_environment())
    return build_plan(job, spark_connection(spark_conn_id), runtime)
