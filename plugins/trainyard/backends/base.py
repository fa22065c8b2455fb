"""What a backend can do: run a plan to its end, and end it before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trainyard.contract.errors import TrainyardError
from trainyard.contract.record import RunRecord
from trainyard.plan import Plan

Say = Callable[[str], None]
"""Takes one line for the task log."""


class Backend(Protocol):
    """One kind of cluster. An instance runs one application."""

    def run(self, plan: Plan, say: Say) -> RunRecord:
        """Submit, wait, and return the record that the application's driver wrote.

        Raises TrainyardError when the application ended without one.
        """

    def kill(self) -> None:
        """End the application and every process of it; nothing to end is no error."""


def backend_for(plan: Plan) -> Backend:
    """The backend for the master that the plan's Spark connection names."""
    if plan.spark.master.startswith("local"):
        from trainyard.backends.local import LocalBackend

        return LocalBackend()
    raise TrainyardError(
        f"{plan.operator}: connection {plan.spark.conn_id!r} names master {plan.spark.master!r}; this release runs "
        "applications on local masters. Write its host as local[2], without a scheme."
    )
