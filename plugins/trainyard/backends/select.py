"""Choose the backend for a Spark master."""

from __future__ import annotations

from trainyard.backends.base import Backend
from trainyard.errors import TrainyardError
from trainyard.planning.connection import SparkConnection
from trainyard.planning.plan import Plan


def backend_for(plan: Plan) -> Backend:
    """The backend for the master that the plan's Spark connection names."""
    if plan.spark.master.startswith("local"):
        from trainyard.backends.local import LocalBackend

        return LocalBackend(plan)
    if plan.spark.master == "yarn":
        from trainyard.backends.yarn import YarnBackend

        return YarnBackend(plan)
    raise TrainyardError(f"{plan.operator}: {unknown_master(plan.spark)}")


def unknown_master(spark: SparkConnection) -> str:
    """What is wrong with a connection that names a master of another kind; empty when it does not."""
    if spark.master.startswith("local") or spark.master == "yarn":
        return ""
    return (
        f"connection {spark.conn_id!r} names master {spark.master!r}; applications run on local masters and on YARN. "
        "Write its host as local[2] or yarn, without a scheme."
    )
