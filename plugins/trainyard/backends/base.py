"""What a backend can do: bring a plan's application on its way, say what became of it, and end it before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from airflow.triggers.base import BaseTrigger

from trainyard.connections import SparkConnection
from trainyard.contract.errors import TrainyardError
from trainyard.contract.record import RunRecord
from trainyard.plan import Plan

Say = Callable[[str], None]
"""Takes one line for the task log."""


class Backend(Protocol):
    """One kind of cluster; an instance runs the application of one plan."""

    def run(self, say: Say) -> RunRecord | BaseTrigger:
        """The record that the application's driver wrote, or a trigger that fires when there may be one.

        Raises TrainyardError when the application ended without a record.
        """

    def kill(self) -> None:
        """End the application and every process of it; nothing to end is no error."""


@runtime_checkable
class DeferredBackend(Backend, Protocol):
    """One whose applications are waited for by a trigger. `pages` are addresses by the keys of links, once known."""

    pages: Mapping[str, str]

    def collect(self, event: Mapping[str, Any], say: Say) -> RunRecord | BaseTrigger:
        """The record of the application that the trigger's event tells of, or a trigger for one in its place.

        Raises TrainyardError as `run` does.
        """


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
