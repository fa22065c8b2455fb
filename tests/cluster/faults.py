"""What can die while an application runs, and what must hold afterwards."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import applications
from tests.cluster.jobs import event, wait_for
from trainyard.backends import processes
from trainyard.backends.yarn import YarnBackend
from trainyard.errors import TrainyardError
from trainyard.planning.plan import Plan
from trainyard.schemas.run_record import RunRecord
from trainyard.triggers.application import ApplicationTrigger

Fault = Callable[[Cluster, str], bool]
"""Happens to an application when it has come far enough for that; whether it did."""

TRIES = 3
DRIVER = "org.apache.spark.deploy.yarn.ApplicationMaster"
EXECUTOR = "YarnCoarseGrainedExecutorBackend"
PYTHON = "pyspark.daemon"


def processes_of(application: str, program: str) -> list[psutil.Process]:
    """The processes of an application's containers that run `program`, parents first."""
    found = []
    for process in psutil.process_iter():
        try:
            theirs = application in process.cwd() and process.name() != "bash"
            if theirs and any(program in part for part in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _kill(program: str, which: int) -> Fault:
    def kill(cluster: Cluster, application: str) -> bool:
        found = processes_of(application, program) if processes_of(application, EXECUTOR) else []
        if len(found) <= which:
            return False
        found[which].kill()
        return True

    return kill


def _daemon(name: str) -> Fault:
    def kill(cluster: Cluster, application: str) -> bool:
        if not processes_of(application, EXECUTOR):
            return False
        cluster.kill(name)
        return True

    return kill


FAULTS: dict[str, Fault] = {
    "executor": _kill(EXECUTOR, 0),
    "driver": _kill(DRIVER, 0),
    "NodeManager": _daemon("node1"),
    "ResourceManager": _daemon("resourcemanager"),
    "DataNode": _daemon("datanode1"),
}
RANK = _kill(PYTHON, 1)
"""A rank is what the daemon of an executor's Python forks, so not the first of these."""


def survived(plan: Plan, cluster: Cluster, fault: Fault) -> RunRecord:
    """The record of `plan`, during whose first application `fault` happens; the daemons are started again.

    A failed try is followed by another, as Airflow's retries do.
    """
    backend = YarnBackend(plan)
    found: RunRecord | ApplicationTrigger = backend.run(print)
    assert isinstance(found, ApplicationTrigger)
    application = found.application
    wait_for(lambda: fault(cluster, application))
    cluster.start()
    cluster.wait()
    for _ in range(TRIES):
        try:
            while isinstance(found, ApplicationTrigger):
                found = backend.collect(event(found), print)
            if found.status == "succeeded":
                return found
            print(found.error)
        except TrainyardError as error:
            print(error)
        backend = YarnBackend(plan)
        found = backend.run(print)
    raise AssertionError(f"{TRIES} tries failed")


def leftovers(plan: Plan, cluster: Cluster) -> list[str]:
    """What is left that should not be: more than one success, live applications, processes of them here."""
    apps = applications(cluster, plan.tag)
    wait_for(lambda: not any(processes_of(str(app["id"]), "") for app in apps), 60)
    found = [f"{app['id']} is {app['state']}" for app in apps if app["state"] in ("NEW", "ACCEPTED", "RUNNING")]
    successes = [app["finalStatus"] for app in apps].count("SUCCEEDED")
    if successes != 1:
        found.append(f"{successes} applications succeeded")
    return found + [f"process {process.pid}" for process in processes.tagged(plan.tag)]
