"""The sensor that waits until the cluster has room for every container of a stage."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator
from airflow.triggers.base import BaseTrigger

from trainyard.clusters.registry import find_cluster
from trainyard.compat import AirflowException
from trainyard.errors import TrainyardError, UnavailableError
from trainyard.jobs.options import validation
from trainyard.jobs.options.base import HasOptions, or_default_deferrable
from trainyard.jobs.options.common import WaitOptions
from trainyard.planning.plan import Plan
from trainyard.schemas.specs.fields import Fixed

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard.jobs.operator import JobOperator


class CapacityOptions(WaitOptions):
    """The options of a CapacitySensor."""

    stage: Fixed[str]
    """The Trainyard task that needs the room, or its id."""


class CapacitySensor(HasOptions, BaseSensorOperator):  # type: ignore[misc]
    """Succeed when the cluster has room for all containers of `stage` at once, its driver included.

    A worker group then never holds some of its nodes while it waits for the rest. The sensor defers until then. It
    takes into account what other users of the cluster allocate: notebooks, other Airflows, plain spark-submit. Two
    trainings of this Airflow could both see the same room, so put them into a pool (`trainyard pools`). On a local
    master, and on Spark standalone, the sensor succeeds at once.

    Args:
        kwargs: Arguments of `BaseSensorOperator`, such as `poke_interval` and `timeout`.
    """

    OPTIONS = CapacityOptions

    def __init__(self, *, stage: JobOperator | str, deferrable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = or_default_deferrable(deferrable)
        self.stage: str = stage if isinstance(stage, str) else getattr(stage, "task_id", "")
        if not self.stage:
            raise TrainyardError(
                f"CapacitySensor {self.task_id!r}: stage={stage!r}: write a task of this DAG, or its id."
            )
        validation.check(self, CapacityOptions)

    def resolve_template_files(self) -> None:
        """Check the stage; Airflow calls this for each task when the whole DAG is parsed.

        Raises:
            TrainyardError: The DAG has no such task, or it submits no application. Airflow shows it as an import error
                of the DAG.
        """
        super().resolve_template_files()
        self._find_stage()

    def execute(self, context: Context) -> None:
        """Wait unless there is room already, or it cannot be known.

        Raises:
            AirflowException: The stage does not fit the cluster even when it is idle.
        """
        if not self.deferrable:
            super().execute(context)
            return
        try:
            trigger = self._make_trigger(context)
        except UnavailableError as error:
            raise AirflowException(str(error)) from None
        if trigger:
            self.defer(trigger=trigger, method_name="resume", timeout=timedelta(seconds=self.timeout))

    def poke(self, context: Context) -> bool:
        """Return whether there is room, or it cannot be known. What is not available now is asked again."""
        try:
            return self._make_trigger(context) is None
        except UnavailableError as error:
            self.log.warning("%s", error)
            return False

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """Log the event of the trigger, and succeed."""
        self.log.info("%s: %s", self.stage, event["room"])

    def _make_trigger(self, context: Context) -> BaseTrigger | None:
        """Return the trigger that waits for room, None if there is room, or it cannot be known.

        Raises:
            UnavailableError: The ResourceManager or a storage does not answer.
        """
        try:
            plan = self._plan(context)
        except UnavailableError:
            raise
        except TrainyardError as error:
            raise AirflowException(str(error)) from None
        try:
            return find_cluster(plan.spark).wait_for_room(plan, self.poke_interval, self._log_of_stage)
        except UnavailableError:
            raise
        except TrainyardError as error:
            if plan.job.preflight == "strict":
                raise AirflowException(str(error)) from None
            self.log.info("%s The stage is not held back.", error)
            return None

    def _log_of_stage(self, line: str) -> None:
        self.log.info("%s: %s", self.stage, line)

    def _plan(self, context: Context) -> Plan:
        from trainyard.jobs.dry_run import plan_task

        stage = plan_task(self._find_stage(), dict(context["params"]))
        if stage.plan is None:
            error = UnavailableError if stage.is_temporary else TrainyardError
            raise error(f"CapacitySensor {self.task_id!r}: stage={self.stage!r}: {stage.problem or stage.note}")
        return stage.plan

    def _find_stage(self) -> Any:
        from trainyard.jobs.dry_run import is_job

        tasks = self.dag.task_dict
        if self.stage in tasks and is_job(tasks[self.stage]):
            return tasks[self.stage]
        problem = "submits no application" if self.stage in tasks else "is not a task of this DAG"
        jobs = ", ".join(sorted(name for name, task in tasks.items() if is_job(task)))
        raise TrainyardError(
            f"CapacitySensor {self.task_id!r}: stage={self.stage!r} {problem}; "
            + (f"write one of {jobs}." if jobs else "the DAG has no Trainyard task that does.")
        )
