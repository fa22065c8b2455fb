"""Applications on YARN in cluster deploy mode: submitted once, waited for by the triggerer."""

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
from trainyard.triggers.application import ApplicationTrigger
from trainyard.usage import resource_usage
from trainyard.yarn import cluster, fit
from trainyard.yarn.lifecycle import Submit, UseResult, decide_on_start
from trainyard.yarn.resource_manager import Application, ResourceManager, UnreachableError
from trainyard.yarn.snapshot import OtherSchedulerError

APPEARS_SECONDS = 30.0


class YarnBackend:
    """Whatever died before, exactly one application does the work of a task."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.pages: Mapping[str, str] = {}

    def run(self, log: Log) -> RunRecord | ApplicationTrigger:
        """The record of work that is done already, or else what to wait for: an application that runs now."""
        plan, manager = self._plan, cluster.resource_manager()
        processes.end(plan.tag)
        found = manager.tagged(plan.tag)
        for ended in (one for one in found if not one.live):
            self._keep(manager, ended, log)
        step = decide_on_start(
            found, run_record.read_latest(plan.task_key), run_record.superseded_application(plan.task_key)
        )
        if isinstance(step, UseResult):
            log(f"{step.record.application} has done this already; its result is taken.")
            return step.record
        if isinstance(step, Submit):
            if step.after:
                log(f"{step.after.id} of an earlier try ended {step.after.state}; it is done anew.")
                self._plan = self._treated(step.after, log)
            application, reattached = self._submit(manager, {one.id for one in found}, log), False
        else:
            application, reattached = step.application, True
            log(f"{application.id} of an earlier try is {application.state}; it is waited for.")
        self.pages = _pages(manager, application)
        log(f"{application.id} in queue {application.queue}: {application.tracking_url}")
        return ApplicationTrigger(application.id, plan.tag, reattached)

    def collect(self, event: Mapping[str, Any], log: Log) -> RunRecord | ApplicationTrigger:
        """The record of the application that the trigger saw end, its logs being told first.

        A task that is cleared starts again while its application still runs, and finds that one; then the
        old trigger ends it. So one that was found, and killed, is done anew. Raises TrainyardError when the
        application wrote no record, with what is known of the reason.
        """
        plan, id = self._plan, str(event["application"])
        manager = cluster.resource_manager()
        trouble, ended = event.get("trouble"), None
        try:
            ended = None if trouble else manager.application(id)
        except UnreachableError as error:
            trouble = str(error)
        self.pages = _pages(manager, ended) if ended else {}
        newest = run_record.read_latest(plan.task_key)
        found = newest if newest and newest.application == id else None
        failed = found is None or found.status == "failed"
        driver = postmortem.log_containers(manager, ended, failed, log) if ended else ""
        if ended:
            self._keep(manager, ended, log)
        if found:
            return postmortem.explain_failure(plan, found)
        if ended and ended.state == "KILLED" and event.get("reattached"):
            log(f"{id}, which an earlier try of this task had submitted, was ended with that try.")
            return self.run(log)
        if trouble:
            raise TrainyardError(
                f"{plan.operator}: nothing was heard of {id}, the ResourceManager being asked: {trouble}. "
                "The next try goes on with it if it still runs."
            )
        raise TrainyardError(postmortem.describe_missing_record(plan, id, ended, driver))

    def kill(self) -> None:
        """End the submission, the application, and all of its containers."""
        processes.end(self._plan.tag)
        cluster.end(self._plan.tag)

    def _keep(self, manager: ResourceManager, ended: Application, log: Log) -> None:
        """Keep what an application held, which the ResourceManager forgets some time after its end."""
        newest = run_record.read_latest(self._plan.task_key)
        found = newest if newest and newest.application == ended.id else None
        page = _pages(manager, ended)[ApplicationLink.KEY]
        resource_usage.save(resource_usage.of_yarn(self._plan, found, ended, page), log)

    def _treated(self, ended: Application, log: Log) -> Plan:
        """The plan with what an earlier try lacked, as far as it may be given."""
        newest = run_record.read_latest(self._plan.task_key)
        error = (newest.error or "") if newest and newest.application == ended.id else ""
        plan, change = remediate(self._plan, diagnose(self._plan, error, ended.diagnostics))
        if change:
            log(change)
        return plan

    def _fitted(self, log: Log) -> Plan:
        """The plan in containers that this cluster grants, held against it."""
        if why := cluster.unusable_token(self._plan.storage):
            raise TrainyardError(f"{self._plan.operator}: {why}")
        try:
            return fit.fit_to_cluster(self._plan, cluster.take_snapshot())
        except OtherSchedulerError as error:
            if self._plan.placement.isolation == "whole_node":
                raise
            log(f"{error} The plan is submitted without being held against it.")
            return self._plan

    def _submit(self, manager: ResourceManager, known: set[str], log: Log) -> Application:
        spark_log = SparkLog()
        status = Submission(_with_spark(self._fitted(log)), spark_log, log).run()
        until = time.monotonic() + (APPEARS_SECONDS if status == 0 else 0)
        while True:
            if new := [one for one in manager.tagged(self._plan.tag) if one.id not in known]:
                return new[0]
            if time.monotonic() > until:
                break
            time.sleep(0.5)
        said = "\n".join(["It said:", *spark_log.last]) if spark_log.last else "It said nothing."
        raise TrainyardError(
            f"{self._plan.operator}: spark-submit ended with exit status {status}, and there is no application. {said}"
        )


def _with_spark(plan: Plan) -> Plan:
    """`plan` with the place of Spark's jars, which spark-submit would else upload each time."""
    home = Path(plan.env.get("SPARK_HOME") or os.environ["SPARK_HOME"])
    known = {**spark_defaults(), **plan.conf}
    return replace(plan, conf={**plan.conf, **environment.settings(plan.storage, known, home)})


def _pages(manager: ResourceManager, application: Application) -> dict[str, str]:
    """The pages of an application, those that there are by now."""
    found = {
        ApplicationLink.KEY: f"{manager.urls[0]}/cluster/app/{application.id}",
        DriverLogLink.KEY: application.driver_logs,
        SparkLink.KEY: application.tracking_url,
    }
    return {key: address for key, address in found.items() if address}
