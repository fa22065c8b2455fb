"""The Spark configuration of an application. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.planning.executors import Executors
from trainyard.planning.job import Job, Runtime
from trainyard.planning.target import Target

CONF = {
    "spark.sql.files.openCostInBytes": "65536",  # Spark's 4 MB makes a task of every 32 small files
    "spark.ui.showConsoleProgress": "false",
}


WORKER_GROUP_CONF = {
    "spark.dynamicAllocation.enabled": "false",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "2s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "5",
    "spark.speculation": "false",
}


def spark_conf(job: Job, target: Target, requested: Executors, tags: Iterable[str], runtime: Runtime) -> dict[str, str]:
    """Return the Spark configuration of a job; the user's settings override those of the target.

    Args:
        job: The job.
        target: Where it is submitted.
        requested: Its executors.
        tags: The tags by which the application is found.
        runtime: What this installation provides.
    """
    conf = CONF | target.list_settings(job, requested, runtime)
    if job.workers:
        conf |= WORKER_GROUP_CONF
    if daemon := target.choose_daemon(job):
        conf["spark.python.daemon.module"] = daemon
    conf |= dict(job.conf or {})
    return conf | target.list_final_settings(job, conf, tags, runtime)
