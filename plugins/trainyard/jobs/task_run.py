"""The run of a task: submit the application of its plan, wait for it, and end it with the task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from airflow.triggers.base import BaseTrigger

from trainyard import links
from trainyard.backends.base import Backend, DeferredBackend, Waiting
from trainyard.clusters.base import Cluster
from trainyard.clusters.registry import find_cluster
from trainyard.compat import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
    TaskDeferralTimeout,
    TaskDeferred,
)
from trainyard.errors import TrainyardError, UnavailableError, summarize
from trainyard.files import storage
from trainyard.hooks.spark import spark_connection
from trainyard.hooks.trainyard import Settings
from trainyard.jobs import lineage
from trainyard.jobs.revision import describe_code
from trainyard.jobs.task_instance import is_running, task_key_of
from trainyard.planning.plan import Plan
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.job import Code
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.triggers import marked_tasks
from trainyard.triggers.application import ApplicationTrigger
from trainyard.triggers.inline import run_inline

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard.jobs.operator import JobOperator


class TaskRun:
    """One attempt of a task in this process.

    It has no backend until it submits an application or resumes the wait for one. A kill may come at any moment, by the
    handler of a signal; what is submitted later is refused.

    Args:
        operator: The operator, with its templates rendered.
    """

    def __init__(self, operator: JobOperator) -> None:
        self._operator = operator
        self._backend: Backend | None = None
        self._is_killed = False
        self._waits_for_cluster = False

    def plan(self, context: Context) -> Plan:
        """Return the plan of the task's application.

        Raises:
            AirflowFailException: An option is not valid, or the cluster can never run the application.
            AirflowException: The application cannot be planned now.
        """
        settings, task_key = self._identify(context)
        with self.final_if_refused():
            return self._operator.plan(task_key, settings)

    def submit(self, context: Context, plan: Plan) -> RunRecord:
        """Run the application of a plan to its end, or defer until it has ended.

        Returns:
            The record that its driver wrote.

        Raises:
            AirflowException: It was not submitted, or ended without a record.
            TaskDeferred: A trigger waits for it.
        """
        with self.final_if_refused():
            backend = find_cluster(plan.spark).create_backend(plan, self._waiting)
        self._use(backend)
        for note in plan.notes:
            self._operator.log.warning("%s: %s", self._operator.title, note)
        task_key = plan.job.task_key
        links.push_report_link(context["ti"], self._operator.conn_id, task_key.dag_id, task_key.run_id)
        self._write_spec(plan, describe_code(plan.py_files, self._operator.dag_file, context["ti"]))
        return self._follow(context, backend, partial(backend.run, self._operator.log.info))

    def collect(self, context: Context, event: Mapping[str, Any]) -> tuple[TaskKey, RunRecord]:
        """Return the task and the record of the application that the trigger waited for.

        It is planned only to submit it again. Raises as `submit`.
        """
        backend, task_key = self._resume_backend(context)
        self._use(backend)
        return task_key, self._follow(context, backend, partial(backend.collect, event, self._operator.log.info))

    def kill(self) -> None:
        """End the application and all its processes; with `cancel_on_kill=False`, not one that runs on a cluster."""
        self._is_killed = True
        if self._backend and (self._operator.cancel_on_kill or not self._waits_for_cluster):
            self._backend.kill()

    @contextmanager
    def end_if_final(self, context: Context) -> Iterator[None]:
        """End the applications of the task if it fails and no attempt follows, which would reattach to them.

        Afterwards a kill ends nothing: Airflow calls `on_kill` also where listeners take long after a failure.
        """
        try:
            yield
        except TaskDeferred:
            raise
        except BaseException as error:  # Airflow's timeout is no Exception
            if ends_applications(error, context["ti"], self._operator.cancel_on_kill):
                self._kill_all(context)
            if not isinstance(error, AirflowTaskTimeout):  # Airflow calls `on_kill` after this one
                self._backend = None
            raise

    def _follow(self, context: Context, backend: Backend, step: Callable[[], RunRecord | BaseTrigger]) -> RunRecord:
        """Take steps of the backend until one returns a record; between them, wait here or defer."""
        while isinstance(outcome := self._take(context, backend, step), BaseTrigger):
            if not is_running(context["ti"]):
                self.kill()
                raise AirflowFailException(
                    "The task was ended while its application was submitted; the application was ended too."
                )
            if self._operator.deferrable:
                marked_tasks.announce_application(context["ti"], cast(ApplicationTrigger, outcome))
                self._operator.defer(trigger=outcome, method_name="resume", timeout=self._operator.execution_timeout)
            self._waits_for_cluster = True
            event = run_inline(outcome)
            self._waits_for_cluster = False
            step = partial(cast(DeferredBackend, backend).collect, event, self._operator.log.info)
        return outcome

    def _take(
        self, context: Context, backend: Backend, step: Callable[[], RunRecord | BaseTrigger]
    ) -> RunRecord | BaseTrigger:
        try:
            return step()
        except TrainyardError as error:
            raise AirflowException(str(error)) from None
        finally:
            if isinstance(backend, DeferredBackend):
                links.push_addresses(context["ti"], backend.pages)

    def _use(self, backend: Backend) -> None:
        """Let a kill end what this backend runs. Raises AirflowException if the attempt was killed already."""
        self._backend = backend
        if self._is_killed:
            raise AirflowException("The attempt was killed before its application was submitted.")

    def _kill_all(self, context: Context) -> None:
        """End the applications of the task. An error is logged, not raised: the task has failed for another reason.

        An attempt that was killed does so only if Airflow's state of the task is still `running`, as when its worker
        shuts down. Else another attempt may run by then; the kill has ended the application of this one.
        """
        try:
            if self._is_killed and not is_running(context["ti"]):
                return
            if self._backend is None and self._find_cluster().outlives_tasks:
                self._backend, _ = self._resume_backend(context)
            if self._backend:
                self._backend.kill_all()
        except Exception as error:
            self._operator.log.error(
                "An application of this task may still run: %s. `trainyard app reap --yes` ends it.", error
            )

    def _resume_backend(self, context: Context) -> tuple[DeferredBackend, TaskKey]:
        operator = self._operator
        settings, task_key = self._identify(context)
        make_plan = partial(operator.plan, task_key, settings)
        with self.final_if_refused():
            backend = self._find_cluster().resume_backend(
                operator.title, task_key, settings.storage, make_plan, self._waiting
            )
        return backend, task_key

    def _identify(self, context: Context) -> tuple[Settings, TaskKey]:
        """Return the settings of the connection and the identity of the task.

        From then on the operator's plans name the task to OpenLineage.
        """
        with self.final_if_refused():
            settings = self._operator.read_settings()
        self._operator.conf = lineage.inject_into_spark(self._operator.conf, context)
        return settings, task_key_of(context["ti"], settings.storage)

    def _find_cluster(self) -> Cluster:
        try:
            return find_cluster(spark_connection(self._operator.spark_conn_id))
        except TrainyardError as error:
            raise type(error)(f"{self._operator.title}: spark_conn_id: {error}") from None

    @property
    def _waiting(self) -> Waiting:
        return Waiting(self._operator.poll_interval, self._operator.get_logs, self._operator.cancel_on_kill)

    def _write_spec(self, plan: Plan, code: Code) -> None:
        spec = self._operator.SPEC.model_validate({**plan.job.spec, "code": code}).to_json().encode()
        for uri in (plan.attempt_uri, plan.spec_uri):
            try:
                storage.replace(uri, spec)
            except Exception as error:  # each storage raises exceptions of its own
                raise AirflowException(
                    f"{self._operator.title}: {uri} cannot be written: {summarize(error)}"
                ) from error

    @contextmanager
    def final_if_refused(self) -> Iterator[None]:
        """Fail the task for what would be refused again, and the attempt for any other error."""
        try:
            yield
        except UnavailableError as error:
            raise AirflowException(str(error)) from None
        except TrainyardError as error:
            raise AirflowFailException(str(error)) from None
        except Exception as error:  # each storage raises exceptions of its own
            raise AirflowException(
                f"{self._operator.title}: the application cannot be planned now: {summarize(error)}"
            ) from error


def ends_applications(error: BaseException, ti: Any, cancel_on_kill: bool) -> bool:
    """Return whether a failure of a task ends its applications: no attempt follows, or Airflow gave up the wait."""
    if isinstance(error, TaskDeferralTimeout) and cancel_on_kill:
        return True
    return isinstance(error, AirflowFailException) or ti.try_number > ti.max_tries
