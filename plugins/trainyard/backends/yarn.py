"""Applications on YARN in cluster deploy mode: submitted once, waited for by the triggerer."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainyard import environment, holding, preflight
from trainyard.backends import aftermath, processes
from trainyard.backends.base import Say
from trainyard.backends.spark_log import SparkLog
from trainyard.backends.submission import Submission
from trainyard.contract import record
from trainyard.contract.errors import TrainyardError
from trainyard.contract.record import RunRecord
from trainyard.diagnosis import diagnose, treated
from trainyard.links import ApplicationLink, DriverLogLink, SparkLink
from trainyard.plan import Plan
from trainyard.runtime import spark_defaults
from trainyard.yarn import cluster
from trainyard.yarn.lifecycle import Submit, Take, on_start
from trainyard.yarn.resource_manager import Application, ResourceManager, UnreachableError
from trainyard.yarn.survey import OtherSchedulerError
from trainyard.yarn.trigger import ApplicationTrigger

APPEARS_SECONDS = 30.0


class YarnBackend:
    """Whatever died before, exactly one application does the work of a task."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.pages: Mapping[str, str] = {}

    def run(self, say: Say) -> RunRecord | ApplicationTrigger:
        """The record of work that is done already, or else what to wait for: an application that runs now."""
        plan, manager = self._plan, cluster.resource_manager()
        processes.end(plan.tag)
        found = manager.tagged(plan.tag)
        for ended in (one for one in found if not one.live):
            self._keep(manager, ended, say)
        step = on_start(found, record.newest(plan.place), record.spent(plan.place))
        if isinstance(step, Take):
            say(f"{step.record.application} has done this already; its result is taken.")
            return step.record
        if isinstance(step, Submit):
            if step.after:
                say(f"{step.after.id} of an earlier try ended {step.after.state}; it is done anew.")
                self._plan = self._treated(step.after, say)
            application, reattached = self._submit(manager, {one.id for one in found}, say), False
        else:
            application, reattached = step.application, True
            say(f"{application.id} of an earlier try is {application.state}; it is waited for.")
        self.pages = _pages(manager, application)
        say(f"{application.id} in queue {application.queue}: {application.tracking_url}")
        return ApplicationTrigger(application.id, plan.tag, reattached)

    def collect(self, event: Mapping[str, Any], say: Say) -> RunRecord | ApplicationTrigger:
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
        newest = record.newest(plan.place)
        found = newest if newest and newest.application == id else None
        failed = found is None or found.status == "failed"
        driver = aftermath.tell_logs(manager, ended, failed, say) if ended else ""
        if ended:
            self._keep(manager, ended, say)
        if found:
            return aftermath.explained(plan, found)
        if ended and ended.state == "KILLED" and event.get("reattached"):
            say(f"{id}, which an earlier try of this task had submitted, was ended with that try.")
            return self.run(say)
        if trouble:
            raise TrainyardError(
                f"{plan.operator}: nothing was heard of {id}, the ResourceManager being asked: {trouble}. "
                "The next try goes on with it if it still runs."
            )
        raise TrainyardError(aftermath.without_record(plan, id, ended, driver))

    def kill(self) -> None:
        """End the submission, the application, and all of its containers."""
        processes.end(self._plan.tag)
        cluster.end(self._plan.tag)

    def _keep(self, manager: ResourceManager, ended: Application, say: Say) -> None:
        """Keep what an application held, which the ResourceManager forgets some time after its end."""
        newest = record.newest(self._plan.place)
        found = newest if newest and newest.application == ended.id else None
        page = _pages(manager, ended)[ApplicationLink.KEY]
        holding.keep(holding.yarn(self._plan, found, ended, page), say)

    def _treated(self, ended: Application, say: Say) -> Plan:
        """The plan with what an earlier try lacked, as far as it may be given."""
        newest = record.newest(self._plan.place)
        error = (newest.error or "") if newest and newest.application == ended.id else ""
        plan, change = treated(self._plan, diagnose(self._plan, error, ended.diagnostics))
        if change:
            say(change)
        return plan

    def _fitted(self, say: Say) -> Plan:
        """The plan in containers that this cluster grants, held against it."""
        if why := cluster.unusable_token(self._plan.storage):
            raise TrainyardError(f"{self._plan.operator}: {why}")
        try:
            return preflight.fitted(self._plan, cluster.survey())
        except OtherSchedulerError as error:
            if self._plan.placement.isolation == "whole_node":
                raise
            say(f"{error} The plan is submitted without being held against it.")
            return self._plan

    def _submit(self, manager: ResourceManager, known: set[str], say: Say) -> Application:
        log = SparkLog()
        status = Submission(_with_spark(self._fitted(say)), log, say).run()
        until = time.monotonic() + (APPEARS_SECONDS if status == 0 else 0)
        while True:
            if new := [one for one in manager.tagged(self._plan.tag) if one.id not in known]:
                return new[0]
            if time.monotonic() > until:
                break
            time.sleep(0.5)
        said = "\n".join(["It said:", *log.last]) if log.last else "It said nothing."
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
