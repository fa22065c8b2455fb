"""The task that waits until a stage has room: a gang never holds half of its nodes while it waits for the rest."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowException

from trainyard.errors import TrainyardError
from trainyard.planning.plan import Plan
from trainyard.triggers.capacity import CapacityTrigger
from trainyard.yarn import capacity, cluster, fit

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard.jobs.operator import JobOperator


class CapacitySensor(BaseSensorOperator):  # type: ignore[misc]
    """Succeeds when the containers of `stage` have room at once, its driver among them; deferred until then.

    It looks at what others use: notebooks, other Airflows, plain spark-submit. Between two gangs of this
    Airflow a pool decides (`python -m trainyard pools`), for both might see the same room. On a local
    master there is nothing to wait for.

    :param stage: the Trainyard task that needs the room, or its id
    """

    def __init__(self, *, stage: JobOperator | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stage = stage if isinstance(stage, str) else stage.task_id

    def execute(self, context: Context) -> None:
        """Defer unless there is room already. Raises AirflowException for a stage that can never have it."""
        try:
            plan = self._plan(context)
            if plan.spark.master != "yarn":
                return
            snapshot = cluster.take_snapshot()
            plan = fit.fit_to_cluster(plan, snapshot)
            queue = snapshot.queue(plan.queue)
            assert queue is not None
            asked = capacity.resource_request(plan, queue, *capacity.containers(plan, snapshot, queue))
        except TrainyardError as error:
            raise AirflowException(str(error)) from None
        if shortfall := capacity.shortfall(asked, snapshot, queue):
            self.log.info("%s: %s", self.stage, shortfall)
            trigger = CapacityTrigger(plan.queue, asdict(asked), self.poke_interval)
            self.defer(trigger=trigger, method_name="resume", timeout=timedelta(seconds=self.timeout))

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """There is room."""
        self.log.info("%s: %s", self.stage, event["room"])

    def _plan(self, context: Context) -> Plan:
        from trainyard.jobs.dry_run import plan_task

        task = self.dag.task_dict.get(self.stage)
        if task is None:
            raise TrainyardError(f"CapacitySensor {self.task_id!r}: stage={self.stage!r} is no task of this DAG.")
        found = plan_task(task, dict(context["params"]))
        if found.plan is None:
            raise TrainyardError(
                f"CapacitySensor {self.task_id!r}: stage={self.stage!r}: {found.problem or found.note}"
            )
        return found.plan
