"""Choose the backend for a Spark master."""

from __future__ import annotations

from trainyard.backends.base import Backend
from trainyard.errors import TrainyardError
from trainyard.planning.connection import SparkConnection
from trainyard.planning.plan import Plan


def select_backend(plan: Plan) -> Backend:
    """Return the backend for the master in the plan's Spark connection.

    Raises:
        TrainyardError: There is none for this master.
    """
    if plan.spark.master.startswith("local"):
        from trainyard.backends.local import LocalBackend

        return LocalBackend(plan)
    if plan.spark.master == "yarn":
        from trainyard.backends.yarn import YarnBackend

        return YarnBackend(plan)
    raise TrainyardError(f"{plan.operator}: {check_master(plan.spark)}")


def check_master(spark: SparkConnection) -> str:
    """Return what is wrong with the master of a connection; empty when a backend supports it."""
    if spark.master.startswith("local") or spark.master == "yarn":
        return ""
    return (
        f"connection {spark.conn_id!r}: master {spark.master!r} is not supported; applications run on local masters "
        "and on YARN. Write its host as local[2] or yarn, without a scheme."
    )
