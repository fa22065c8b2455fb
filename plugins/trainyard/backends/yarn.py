"""Run applications on YARN in cluster deploy mode: submit once, wait in the triggerer."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainyard.backends import postmortem, processes
from trainyard.backends.spark_log import SparkLog
from trainyard.backends.submission import Submission
from trainyard.diagnosis.diagnose import diagnose
from trainyard.diagnosis.memory import remediate
from trainyard.errors import TrainyardError
from trainyard.links import ApplicationLink, DriverLogLink, SparkLink
from trainyard.log import Log
from trainyard.planning import environment
from trainyard.planning.plan import Plan
from trainyard.planning.runtime import spark_defaults
from trainyard.schemas import run_record
from trainyard.schemas.run_record import RunRecord
from trainyard.triggers.application import PATIENCE_SECONDS, ApplicationTrigger
from trainyard.usage import resource_usage
from trainyard.yarn import cluster, fit
from trainyard.yarn.lifecycle import Submit, UseResult, decide_on_start
from trainyard.yarn.resource_manager import Application, ResourceManager, UnreachableError
from trainyard.yarn.snapshot import OtherSchedulerError

REGISTRATION_SECONDS = 30.0
"""How long an application may take to appear in the ResourceManager after spark-submit succeeded."""


class YarnBackend:
    """Run at most one live application per task, across retries and crashes."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.pages: Mapping[str, str] = {}

    def run(self, log: Log) -> RunRecord | ApplicationTrigger:
        """Return the record of an application that has succeeded, or a trigger that waits for one that runs.

        The application is one of an earlier attempt, found by the task's YARN tag, or is submitted now.

        Raises:
            TrainyardError: The plan does not fit the cluster, or spark-submit failed.
        """
        plan, manager = self._plan, cluster.resource_manager()
        processes.end(plan.tag)
        applications = manager.tagged(plan.tag)
        for application in applications:
            if not application.live:
                self._save_usage(manager, application, log)
        step = decide_on_start(
            applications, run_record.read_latest(plan.task_key), run_record.superseded_application(plan.task_key)
        )
        if isinstance(step, UseResult):
            log(f"{step.record.application} of an earlier attempt has succeeded; its result is used.")
            return step.record
        if isinstance(step, Submit):
            if step.after:
                log(f"{step.after.id} of an earlier attempt ended {step.after.state}; a new application is submitted.")
                self._plan = self._remediate(step.after, log)
            application, reattached = self._submit(manager, {known.id for known in applications}, log), False
        else:
            application, reattached = step.application, True
            log(f"{application.id} of an earlier attempt is {application.state}; this attempt waits for it.")
        self.pages = _pages(manager, application)
        log(f"{application.id} in queue {application.queue}: {application.tracking_url}")
        return ApplicationTrigger(application.id, plan.tag, reattached)

    def collect(self, event: Mapping[str, Any], log: Log) -> RunRecord | ApplicationTrigger:
        """Log the end of the application in the trigger's event, and return its record.

        A task that is cleared starts again while its application runs, and reattaches to it; then the trigger of the
        cleared attempt kills that application. So one that was reattached to and killed is submitted again.

        Raises:
            TrainyardError: The application wrote no record; the message has the cause, where it is recognized.
        """
        plan, id = self._plan, str(event["application"])
        manager = cluster.resource_manager()
        trouble, ended = event.get("trouble"), None
        try:
            ended = None if trouble else manager.application(id)
        except UnreachableError as error:
            trouble = str(error)
        self.pages = _pages(manager, ended) if ended else {}
        record = self._record_of(id)
        failed = record is None or record.status == "failed"
        driver = postmortem.log_containers(manager, ended, failed, log) if ended else ""
        if ended:
            self._save_usage(manager, ended, log)
        if record:
            return postmortem.explain_failure(plan, record)
        if ended and ended.state == "KILLED" and event.get("reattached"):
            log(f"{id} of an earlier attempt was killed when that attempt was cleared.")
            return self.run(log)
        if trouble:
            waited = f" for {PATIENCE_SECONDS / 60:.0f} minutes" if event.get("trouble") else ""
            raise TrainyardError(
                f"{plan.operator}: the ResourceManager has returned no status for {id}{waited}: {trouble}. The next "
                "attempt reattaches to the application if it still runs."
            )
        raise TrainyardError(postmortem.describe_missing_record(plan, id, ended, driver))

    def kill(self) -> None:
        """End the submission, the application, and all of its containers."""
        processes.end(self._plan.tag)
        cluster.end(self._plan.tag)

    def _record_of(self, id: str) -> RunRecord | None:
        latest = run_record.read_latest(self._plan.task_key)
        return latest if latest and latest.application == id else None

    def _save_usage(self, manager: ResourceManager, ended: Application, log: Log) -> None:
        """Save the resource usage of an application, which the ResourceManager forgets some time after its end."""
        page = _pages(manager, ended)[ApplicationLink.KEY]
        resource_usage.save(resource_usage.of_yarn(self._plan, self._record_of(ended.id), ended, page), log)

    def _remediate(self, ended: Application, log: Log) -> Plan:
        """Return the plan with the memory that an earlier attempt needed, up to `grow_memory_to`."""
        record = self._record_of(ended.id)
        error = (record.error or "") if record else ""
        plan, change = remediate(self._plan, diagnose(self._plan, error, ended.diagnostics))
        if change:
            log(change)
        return plan

    def _fit(self, log: Log) -> Plan:
        """Return the plan with container sizes that this cluster grants, checked against its nodes and queues."""
        if why := cluster.unusable_token(self._plan.storage):
            raise TrainyardError(f"{self._plan.operator}: {why}")
        try:
            return fit.fit_to_cluster(self._plan, cluster.take_snapshot())
        except OtherSchedulerError as error:
            if self._plan.placement.isolation == "whole_node":
                raise
            log(f"{error} The plan is submitted without a check against the cluster.")
            return self._plan

    def _submit(self, manager: ResourceManager, known: set[str], log: Log) -> Application:
        """Submit the plan, and return the tagged application that was not `known` before."""
        spark_log = SparkLog()
        status = Submission(_with_spark_jars(self._fit(log)), spark_log, log).run()
        deadline = time.monotonic() + (REGISTRATION_SECONDS if status == 0 else 0)
        while True:
            if new := [application for application in manager.tagged(self._plan.tag) if application.id not in known]:
                return new[0]
            if time.monotonic() > deadline:
                break
            time.sleep(0.5)
        output = "\n".join(["Last output:", *spark_log.last]) if spark_log.last else "No output was captured."
        raise TrainyardError(
            f"{self._plan.operator}: spark-submit ended with exit status {status} and submitted no application. "
            f"{output}"
        )


def _with_spark_jars(plan: Plan) -> Plan:
    """Return the plan with the URI of Spark's jars, which spark-submit would otherwise upload each time."""
    home = Path(plan.env.get("SPARK_HOME") or os.environ["SPARK_HOME"])
    conf = {**spark_defaults(), **plan.conf}
    return replace(plan, conf={**plan.conf, **environment.settings(plan.storage, conf, home)})


def _pages(manager: ResourceManager, application: Application) -> dict[str, str]:
    """Return the addresses of an application's pages that exist by now, by the keys of their links."""
    addresses = {
        ApplicationLink.KEY: f"{manager.urls[0]}/cluster/app/{application.id}",
        DriverLogLink.KEY: application.driver_logs,
        SparkLink.KEY: application.tracking_url,
    }
    return {key: address for key, address in addresses.items() if address}
