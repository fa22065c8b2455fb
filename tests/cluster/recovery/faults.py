"""Processes that a test kills while an application runs, and checks of what is left afterwards."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import list_applications
from tests.cluster.jobs import build_backend, get_event, wait_for
from trainyard.backends import processes
from trainyard.errors import TrainyardError
from trainyard.planning.plan import Plan
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.triggers.application import ApplicationTrigger

Fault = Callable[[Cluster, str], bool]
"""A function that kills something of an application, if it has started far enough; returns whether it did."""

ATTEMPTS = 3
DRIVER = "org.apache.spark.deploy.yarn.ApplicationMaster"
EXECUTOR = "YarnCoarseGrainedExecutorBackend"
PYTHON = "pyspark.worker"


def find_processes(application: str, program: str) -> list[psutil.Process]:
    """Return the processes of an application's containers that run `program`, parents first."""
    matches = []
    for process in psutil.process_iter():
        try:
            in_container = application in process.cwd() and process.name() != "bash"
            if in_container and any(program in part for part in process.cmdline()):
                matches.append(process)
        except psutil.Error:
            continue
    return matches


def _kill_process(program: str, index: int) -> Fault:
    def kill(cluster: Cluster, application: str) -> bool:
        matches = find_processes(application, program) if find_processes(application, EXECUTOR) else []
        if len(matches) <= index:
            return False
        matches[index].kill()
        return True

    return kill


def _kill_daemon(name: str) -> Fault:
    def kill(cluster: Cluster, application: str) -> bool:
        if not find_processes(application, EXECUTOR):
            return False
        cluster.kill(name)
        return True

    return kill


FAULTS: dict[str, Fault] = {
    "executor": _kill_process(EXECUTOR, 0),
    "driver": _kill_process(DRIVER, 0),
    "NodeManager": _kill_daemon("node1"),
    "ResourceManager": _kill_daemon("resourcemanager"),
    "DataNode": _kill_daemon("datanode1"),
}


def kill_worker(cluster: Cluster, application: str) -> bool:
    """Kill a worker: a process that one of these processes has forked."""
    matches = find_processes(application, PYTHON)
    workers = [process for process in matches if process.ppid() in {other.pid for other in matches}]
    if workers:
        workers[-1].kill()
    return bool(workers)


def run_with_fault(plan: Plan, cluster: Cluster, fault: Fault) -> RunRecord:
    """Run a plan, cause `fault` during its first application, and restart daemons; return the record.

    A failed attempt is followed by another, as Airflow's retries do.
    """
    backend = build_backend(plan)
    result: RunRecord | ApplicationTrigger = backend.run(print)
    assert isinstance(result, ApplicationTrigger)
    application = result.application
    wait_for(lambda: fault(cluster, application))
    cluster.start()
    cluster.wait()
    for _ in range(ATTEMPTS):
        try:
            while isinstance(result, ApplicationTrigger):
                result = backend.collect(get_event(result), print)
            if result.status == "succeeded":
                return result
            print(result.error)
        except TrainyardError as error:
            print(error)
        backend = build_backend(plan)
        result = backend.run(print)
    raise AssertionError(f"{ATTEMPTS} attempts failed")


def find_leftovers(plan: Plan, cluster: Cluster) -> list[str]:
    """Return what should not be left: several successes, live applications, and their processes."""
    apps = list_applications(cluster, plan.tag)
    wait_for(lambda: not any(find_processes(str(app["id"]), "") for app in apps), 60)
    problems = [f"{app['id']} is {app['state']}" for app in apps if app["state"] in ("NEW", "ACCEPTED", "RUNNING")]
    successes = [app["finalStatus"] for app in apps].count("SUCCEEDED")
    if successes != 1:
        problems.append(f"{successes} applications succeeded")
    return problems + [f"process {process.pid}" for process in processes.find_tagged(plan.tag)]
