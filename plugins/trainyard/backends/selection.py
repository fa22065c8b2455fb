"""Choose the backend for a Spark master."""

from __future__ import annotations

from collections.abc import Callable

from trainyard.backends.base import Backend, DeferredBackend, Waiting
from trainyard.errors import TrainyardError
from trainyard.planning.job import SparkConnection
from trainyard.planning.plan import Plan
from trainyard.planning.spark_conf import local_slots
from trainyard.schemas.specs.task_key import TaskKey


def select_backend(plan: Plan, waiting: Waiting) -> Backend:
    """Return the backend for the master in the plan's Spark connection.

    Args:
        plan: The plan.
        waiting: How the task waits for an application on YARN.

    Raises:
        TrainyardError: There is none for this master.
    """
    if local_slots(plan.spark.master) is not None:
        from trainyard.backends.local import LocalBackend

        return LocalBackend(plan)
    if plan.spark.master == "yarn":
        return resume_backend(plan.operator, plan.task_key, plan.storage, lambda: plan, waiting)
    raise TrainyardError(f"{plan.operator}: {check_master(plan.spark)}")


def resume_backend(
    operator: str, task_key: TaskKey, root: str, make_plan: Callable[[], Plan], waiting: Waiting
) -> DeferredBackend:
    """Return the backend that a deferred task resumes with.

    Args:
        operator: The operator, for error messages.
        task_key: The task.
        root: The storage root, a URI.
        make_plan: Returns the plan; called only to submit again, or to explain a failure.
        waiting: How the task waits for an application.
    """
    from trainyard.backends.yarn import YarnBackend

    return YarnBackend(operator, task_key, root, make_plan, waiting)


def check_master(spark: SparkConnection) -> str:
    """Return what is wrong with the master of a connection; empty when a backend supports it."""
    if local_slots(spark.master) is not None or spark.master == "yarn":
        return ""
    return (
        f"connection {spark.conn_id!r}: the master that its type, host and port name is not supported; applications "
        "run on local masters and on YARN. Write its host as local[2] or yarn, without a scheme."
    )
