"""Run applications on YARN in cluster deploy mode: submit once, wait in the triggerer."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainyard.backends import postmortem, processes
from trainyard.backends.base import Waiting
from trainyard.backends.submission import Submission
from trainyard.compat import list_setting
from trainyard.diagnosis.diagnose import diagnose
from trainyard.diagnosis.memory import remediate
from trainyard.errors import TrainyardError
from trainyard.files import permissions
from trainyard.hooks import airflow_id
from trainyard.links import ApplicationLink, DriverLogLink, SparkLink
from trainyard.planning.paths import application_tag, is_submission_tag, submission_tag
from trainyard.planning.plan import Plan
from trainyard.planning.runtime import spark_defaults
from trainyard.planning.shipping import environment
from trainyard.schemas.runs import run_record
from trainyard.schemas.runs.owner import Owner, owner_uri, remove_owner
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.runs.worker_progress import progress_uri
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.spark_log import SparkLog
from trainyard.text import Log
from trainyard.triggers.application import PATIENCE_SECONDS, ApplicationTrigger
from trainyard.usage import resource_usage
from trainyard.yarn import cluster, fit
from trainyard.yarn.lifecycle import (
    Explain,
    GiveUp,
    Reattach,
    StartAgain,
    Submit,
    UseResult,
    decide_on_end,
    decide_on_start,
)  # fmt: skip
from trainyard.yarn.resource_manager import LIVE, Application, ResourceManager, UnreachableError
from trainyard.yarn.settings import TAGS
from trainyard.yarn.snapshot import ClusterSnapshot, OtherSchedulerError

REGISTRATION_SECONDS = 30.0
"""How long an application may take to appear in the ResourceManager after spark-submit succeeded."""
KILLED_SECONDS = 2.0
"""The same, after spark-submit was killed. Airflow leaves a task five seconds in all."""
SUBMISSION_GRACE_SECONDS = 1.0
"""How long spark-submit, which has nothing to save, may take to end by SIGTERM, and then by SIGKILL."""

_logger = logging.getLogger(__name__)


class YarnBackend:
    """Run at most one live application per task, across retries and crashes.

    Args:
        operator: The operator, for error messages.
        task_key: The task.
        root: The storage root, a URI.
        make_plan: Returns the plan. It is called to submit, and to explain a failure.
        waiting: How the task waits for an application.
    """

    def __init__(
        self,
        operator: str,
        task_key: TaskKey,
        root: str,
        make_plan: Callable[[], Plan],
        waiting: Waiting = Waiting(),  # noqa: B008
    ) -> None:
        self._operator, self._task_key, self._root, self._make_plan = operator, task_key, root, make_plan
        self._tag, self._waiting = application_tag(task_key), waiting
        self._killed = False
        self._submission_tag = ""
        self._application = ""
        self.pages: Mapping[str, str] = {}

    def run(self, log: Log) -> RunRecord | ApplicationTrigger:
        """Return the record of an application that has succeeded, or a trigger that waits for one that runs.

        The application is one of an earlier attempt, found by the task's YARN tag, or is submitted now.

        Raises:
            TrainyardError: The plan does not fit the cluster, or spark-submit failed.
        """
        manager = cluster.resource_manager()
        processes.end(self._tag)
        applications = manager.tagged(self._tag)
        for application in applications:
            if not application.live:
                self._save_usage(manager, application, log)
        step = decide_on_start(
            applications, run_record.read_latest(self._task_key), run_record.superseded_application(self._task_key)
        )
        if isinstance(step, UseResult):
            log(f"{step.record.application} of an earlier attempt has succeeded; its result is used.")
            return step.record
        if isinstance(step, Submit):
            plan = self._make_plan()
            for ended in step.after:
                plan = self._remediate(plan, ended, log)
            if step.after:
                last = step.after[-1]
                log(f"{last.id} of an earlier attempt ended {last.state}; a new application is submitted.")
            submitted = self._submit(plan, manager, log)
            application = self._keep_oldest(submitted, manager, log)
            reattached = application is not submitted
        else:
            application, reattached = step.application, True
            self._application = application.id
            log(f"{application.id} of an earlier attempt is {application.state}; this attempt waits for it.")
        self.pages = _pages(manager, application)
        log(f"{application.id} in queue {application.queue}: {application.tracking_url}")
        return self._wait_for(application.id, reattached)

    def _wait_for(self, id: str, reattached: bool) -> ApplicationTrigger:
        return ApplicationTrigger(
            id, self._tag, reattached, progress_uri(self._task_key), self._waiting.get_logs,
            self._waiting.cancel_on_kill, self._waiting.poll_interval,
        )  # fmt: skip

    def collect(self, event: Mapping[str, Any], log: Log) -> RunRecord | ApplicationTrigger:
        """Log the end of the application in the trigger's event, and return its record; wait on if it has not ended.

        One that was killed with the attempt that it was reattached from is submitted again.

        Raises:
            TrainyardError: The application wrote no record; the message has the cause, where it is recognized.
        """
        id, is_of_earlier = str(event["application"]), bool(event.get("reattached"))
        application, error = self._look_up(id)
        no_answer = None if application else event.get("error") or error
        record = None if application and application.live else self._record_of(id)
        logs = postmortem.ContainerLogs()
        if application and not application.live:
            logs = self._log_end(application, record, log)
        match decide_on_end(application, record, no_answer, is_of_earlier, self._killed):
            case Reattach(live):
                log(f"{id} is {live.state}; this attempt waits for it.")
                return self._wait_for(id, is_of_earlier)
            case UseResult(succeeded):
                return succeeded
            case StartAgain():
                log(f"{id} of an earlier attempt was killed when that attempt was cleared.")
                return self.run(log)
            case GiveUp(reason):
                waited = f" for {PATIENCE_SECONDS / 60:.0f} minutes" if event.get("error") else ""
                raise TrainyardError(
                    f"{self._operator}: the ResourceManager has returned no status for {id}{waited}: {reason}. The "
                    "next attempt reattaches to the application if it still runs."
                )
            case Explain(failed):
                return self._explain(id, application, failed, logs, log)

    def _look_up(self, id: str) -> tuple[Application | None, str | None]:
        """Return an application, or why YARN does not answer; neither if YARN does not have it any more."""
        try:
            manager = cluster.resource_manager()
            application = manager.application(id)
        except TrainyardError as error:
            return None, str(error)
        if application:
            self.pages = _pages(manager, application)
        return application, None

    def _log_end(self, ended: Application, record: RunRecord | None, log: Log) -> postmortem.ContainerLogs:
        """Log the end of an application, save its resource usage, and return the logs of its containers."""
        manager = cluster.resource_manager()
        log(f"{ended.id} ended {ended.final_status}: {ended.tracking_url}")
        logs = postmortem.log_containers(manager, ended, record is None or record.status == "failed", log)
        self._save_usage(manager, ended, log)
        for submission in filter(is_submission_tag, ended.tags):
            self._remove_owner(submission)
        return logs

    def _explain(
        self, id: str, ended: Application | None, record: RunRecord | None, logs: postmortem.ContainerLogs, log: Log
    ) -> RunRecord:
        """Return the record of a failure with its cause. Raises TrainyardError with the cause if there is no record."""
        try:
            plan = self._make_plan()
        except Exception as error:  # each storage raises exceptions of its own
            log(f"The cause of the failure is not looked for, because the application cannot be planned now: {error}")
            if record:
                return record
            state = f"{ended.state}. YARN's diagnostics: {ended.diagnostics.strip() or 'none'}" if ended else "unknown."
            raise TrainyardError(f"{self._operator}: {id} wrote no run record; its state is {state}") from None
        if record:
            return postmortem.explain_failure(plan, record, ended, logs)
        raise TrainyardError(postmortem.describe_missing_record(plan, id, ended, logs))

    def kill(self) -> None:
        """End the submission of this instance, and its application; none of another attempt.

        Errors are logged: in a handler of a signal an exception would end what `run` still has to do.
        """
        self._killed = True
        for end in (self._end_submission, self._end_application):
            try:
                end()
            except Exception as error:
                _logger.error("An application of %s may still run: %s", self._operator, error)

    def kill_all(self) -> None:
        """End every application of the task."""
        processes.end(self._tag)
        cluster.kill_tagged(self._tag)

    def _end_submission(self) -> None:
        """End spark-submit in half of the time that Airflow leaves, also one that no signal ends at once."""
        processes.end(self._tag, SUBMISSION_GRACE_SECONDS, SUBMISSION_GRACE_SECONDS)

    def _end_application(self) -> None:
        if self._application:
            cluster.kill(self._application)
        elif self._submission_tag:
            cluster.kill_tagged(self._submission_tag)

    def _remove_owner(self, submission: str) -> None:
        """Remove the record of a submission's owner. Errors leave it to `trainyard app reap`."""
        with suppress(Exception):
            remove_owner(self._root, submission)

    def _record_of(self, id: str) -> RunRecord | None:
        latest = run_record.read_latest(self._task_key)
        return latest if latest and latest.application == id else None

    def _save_usage(self, manager: ResourceManager, ended: Application, log: Log) -> None:
        """Save the resource usage of an application, which the ResourceManager removes some time after its end."""
        page = _pages(manager, ended)[ApplicationLink.KEY]
        resource_usage.save(resource_usage.of_yarn(self._task_key, self._record_of(ended.id), ended, page), log)

    def _remediate(self, plan: Plan, ended: Application, log: Log) -> Plan:
        """Return the plan with the memory that an earlier attempt needed, up to `grow_memory_to`."""
        record = self._record_of(ended.id)
        error = (record.error or "") if record else resource_usage.read_error(self._task_key, ended.id)
        plan, change = remediate(plan, diagnose(plan, error, ended.diagnostics))
        if change:
            log(change)
        return plan

    def _fit(self, plan: Plan, log: Log) -> Plan:
        """Return the plan with container sizes that this cluster grants, checked against its nodes and queues."""
        if why := cluster.unusable_token(plan.job.storage):
            raise TrainyardError(f"{self._operator}: {why}")
        needs_nodes = plan.job.placement.isolation == "whole_node"
        snapshot: ClusterSnapshot | None = None
        try:
            if needs_nodes or plan.job.preflight != "off":
                snapshot = cluster.take_snapshot()
        except OtherSchedulerError as error:
            if needs_nodes:
                raise
            log(f"{error} The plan is submitted without a check against the cluster.")
        return fit.fit_to_cluster(plan, snapshot, log)

    def _submit(self, plan: Plan, manager: ResourceManager, log: Log) -> Application:
        """Submit the plan, and return its application, which is found by a tag of this submission alone."""
        spark_log, status = SparkLog(), None
        plan = _with_spark_jars(self._fit(plan, log))
        self._submission_tag = submission_tag(uuid.uuid4().hex)
        Owner(task_key=self._task_key, airflow=airflow_id.get_id()).save(self._root, self._submission_tag)
        self._refuse_foreign_archives(plan)
        plan = replace(plan, conf={**plan.conf, TAGS: f"{plan.conf[TAGS]},{self._submission_tag}"})
        if not self._killed:
            status = Submission(plan, spark_log, log, self._end_if_killed).run()
        application = self._find_submitted(manager, status)
        if application and not self._killed:
            return application
        if application:
            manager.kill(application.id)
        self._remove_owner(self._submission_tag)
        if self._killed:
            raise TrainyardError(f"{self._operator} was killed while it was submitted; no application of it is left.")
        output = "\n".join(["Last output:", *spark_log.last]) if spark_log.last else "No output was captured."
        raise TrainyardError(
            f"{self._operator}: spark-submit ended with exit status {status} and submitted no application. {output}"
        )

    def _refuse_foreign_archives(self, plan: Plan) -> None:
        """Raise TrainyardError if another user can write to an archive that the application runs.

        The submitting user is the owner of a document that this submission has just written.
        """
        written = permissions.read_access(owner_uri(self._root, self._submission_tag))
        if written is None:
            return
        owners = {written.owner, *list_setting("trainyard", "archive_owners")}
        try:
            environment.refuse_foreign(plan.job.storage, {**spark_defaults(), **plan.conf}, owners)
        except TrainyardError as error:
            self._remove_owner(self._submission_tag)
            raise TrainyardError(f"{self._operator}: {error}") from None

    def _keep_oldest(self, submitted: Application, manager: ResourceManager, log: Log) -> Application:
        """Return the oldest live application of the task, and kill the one that was submitted now if it is younger.

        An earlier attempt, which seemed lost, may have submitted another one since this attempt started.
        """
        oldest = min([submitted, *manager.tagged(self._tag, LIVE)], key=lambda application: application.age_key)
        if oldest.id == submitted.id:
            return submitted
        log(f"{oldest.id} of an earlier attempt is {oldest.state}; {submitted.id} is killed, a duplicate of it.")
        manager.kill(submitted.id)
        self._remove_owner(self._submission_tag)
        self._application = oldest.id
        return oldest

    def _find_submitted(self, manager: ResourceManager, status: int | None) -> Application | None:
        """Return the application of this submission, once the ResourceManager has it; None if it has none in time.

        Args:
            manager: The ResourceManager.
            status: The exit status of spark-submit, None if it was not started.

        Raises:
            UnreachableError: No ResourceManager has answered in time, so that there may be an application.
        """
        timeout = KILLED_SECONDS if self._killed else REGISTRATION_SECONDS if status == 0 else 0.0
        deadline = time.monotonic() + (0.0 if status is None else timeout)
        while True:
            is_last = time.monotonic() > deadline
            try:
                if submitted := manager.tagged(self._submission_tag):
                    self._application = submitted[0].id
                    return submitted[0]
            except UnreachableError:
                if is_last:
                    raise
            if is_last:
                return None
            time.sleep(0.5)

    def _end_if_killed(self) -> None:
        """End spark-submit if `kill` was called while it started, and could not find it yet."""
        if self._killed:
            self._end_submission()


def _with_spark_jars(plan: Plan) -> Plan:
    """Return the plan with the URI of Spark's jars, which spark-submit would otherwise upload each time."""
    home = Path(plan.env.get("SPARK_HOME") or os.environ["SPARK_HOME"])
    conf = {**spark_defaults(), **plan.conf}
    return replace(plan, conf={**plan.conf, **environment.settings(plan.job.storage, conf, home)})


def _pages(manager: ResourceManager, application: Application) -> dict[str, str]:
    """Return the addresses of an application's pages that exist by now, by the keys of their links."""
    addresses = {
        ApplicationLink.KEY: f"{manager.urls[0]}/cluster/app/{application.id}",
        DriverLogLink.KEY: application.driver_logs,
        SparkLink.KEY: application.tracking_url,
    }
    return {key: address for key, address in addresses.items() if address}
