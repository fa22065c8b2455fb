"""Build the plan of an operator's application from its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainyard.hooks.spark import spark_connection
from trainyard.jobs.locations import recipes_of_models, user_code
from trainyard.planning.archive import DRIVER, build_archive
from trainyard.planning.job import Job, Runtime
from trainyard.planning.plan import Plan, build_plan
from trainyard.planning.runtime import airflow_home, spark_environment
from trainyard.schemas.specs.task_key import TaskKey

if TYPE_CHECKING:
    from trainyard.jobs.operator import JobOperator


def plan_operator(operator: JobOperator, task_key: TaskKey, root: str, spec: Mapping[str, Any]) -> Plan:
    """Build the plan of an operator's application.

    Args:
        operator: The operator, its templates rendered where their values are known.
        task_key: The task that the application belongs to.
        root: The storage root, a URI.
        spec: The fields of the job spec, as JSON; some may still be templates.

    Raises:
        TrainyardError: User code is missing, or the cluster can never run the application.
    """
    paths = [*user_code(spec).values(), *recipes_of_models(spec)]
    archive = build_archive(paths, operator.dag_file, airflow_home() / "trainyard-code")
    job = Job(
        operator=operator.title, task_key=task_key, storage=root, spec=spec,
        memory=operator.memory, driver_memory=operator.driver_memory, grow_memory_to=operator.grow_memory_to,
        placement=operator.placement, modules=operator.modules(spec), workers=spec.get("workers"),
        min_workers=spec.get("min_workers"), conf=operator.conf or {},
    )  # fmt: skip
    runtime = Runtime(str(DRIVER), (str(archive),), spark_environment())
    return build_plan(job, spark_connection(operator.spark_conn_id), runtime)
