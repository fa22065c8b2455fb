"""The Spark configuration of an application. Pure functions."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping

from trainyard.planning import environment, executors, placement, sizing
from trainyard.planning.executors import Executors
from trainyard.planning.job import Job, Runtime, SparkConnection

LOCAL_ENV = {"SPARK_LOCAL_IP": "127.0.0.1"}


LOCAL_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}


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


SHIPPED_HADOOP_CONF = "./__spark_conf__/__hadoop_conf__"
"""Where Spark unpacks the client's Hadoop configuration in each container; Python reads HDFS with it too."""


YARN_CONF = {
    # Else Spark waits for executors, 30 s where some do not fit; the driver knows how many tasks run at once.
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.yarn.maxAppAttempts": "1",
    "spark.yarn.submit.waitAppCompletion": "false",
    "spark.yarn.appMasterEnv.HADOOP_CONF_DIR": SHIPPED_HADOOP_CONF,
    "spark.yarn.appMasterEnv.PYTHONSAFEPATH": "1",
    "spark.yarn.appMasterEnv.PYTHONUNBUFFERED": "1",
    "spark.executorEnv.HADOOP_CONF_DIR": SHIPPED_HADOOP_CONF,
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.executorEnv.PYTHONUNBUFFERED": "1",
}


AUTHENTICATION = "spark.authenticate"
AUTHENTICATED_CONF = {AUTHENTICATION: "true", "spark.network.crypto.enabled": "true"}
"""Only an application's own containers connect to each other, by a secret that YARN brings to them, and what they send
is encrypted: tasks have the secret of their worker group. A shuffle service of the nodes would need the same settings.
"""
SHUFFLE_SERVICE = "spark.shuffle.service.enabled"


DRIVER, EXECUTOR = CONTAINER_ENVIRONMENTS = ("spark.yarn.appMasterEnv", "spark.executorEnv")
"""The prefixes of the settings for environment variables of the driver, and of executors."""
USER = "HADOOP_USER_NAME"
PYTHONPATH = "spark.executorEnv.PYTHONPATH"
TAGS = "spark.yarn.tags"
MAX_USER_TAGS = 6
"""YARN allows ten tags on an application, by default; the others are Trainyard's."""


DAEMON_NATIVE = "3g"
"""The least native memory of a container on YARN whose workers are forked from a process that has imported torch. That
process takes 0.8 GB of it."""


OPTION_OF_SETTING = {
    "spark.driver.memory": "driver_memory=Memory(heap=...)",
    "spark.driver.memoryOverhead": "driver_memory=Memory(native=...)",
    "spark.executor.cores": "cores_per_executor=",
    "spark.executor.instances": "executors=",
    "spark.executor.memory": "memory=Memory(heap=...)",
    "spark.executor.memoryOverhead": "memory=Memory(native=...)",
    "spark.executor.pyspark.memory": "memory=Memory(pyspark=...)",
    "spark.memory.offHeap.size": "memory=Memory(off_heap=...)",
    "spark.dynamicAllocation.enabled": "executors=(MIN, MAX)",
    "spark.dynamicAllocation.maxExecutors": "executors=(MIN, MAX)",
    "spark.dynamicAllocation.minExecutors": "executors=(MIN, MAX)",
    "spark.executor.resource.gpu.amount": "placement=Placement(gpus_per_worker=...)",
    "spark.yarn.queue": "placement=Placement(queue=...)",
    "spark.yarn.am.nodeLabelExpression": "placement=Placement(driver_label=...)",
    "spark.yarn.executor.nodeLabelExpression": "placement=Placement(node_label=...)",
}
"""Settings that decide the number, size and nodes of containers on YARN, and the option to use instead: it is checked
against the cluster."""


OPTION_OF_GROUP_SETTING = {
    "spark.executor.cores": "cores_per_worker=, or placement=Placement(workers_per_container=...)",
    "spark.executor.instances": "workers=, or placement=Placement(workers_per_container=...)",
    "spark.dynamicAllocation.enabled": "workers=(MIN, MAX)",
    "spark.dynamicAllocation.maxExecutors": "workers=(MIN, MAX)",
    "spark.dynamicAllocation.minExecutors": "workers=(MIN, MAX)",
    "spark.task.cpus": "cores_per_worker=",
}
"""The same for worker groups, where the option differs."""


RESERVED = {
    "spark.app.name": "the name is made of DAG and task",
    "spark.master": "write it as the host of the Spark connection",
    "spark.submit.deployMode": 'write {"deploy-mode": "cluster"} in the extra of the Spark connection',
    "spark.yarn.maxAppAttempts": "retries= of the task submits again, and reattaches to what runs",
    "spark.yarn.submit.waitAppCompletion": "the triggerer waits for the application",
}
"""Settings that submission rests on, and what there is in their place."""


def spark_conf(
    job: Job, spark: SparkConnection, requested: Executors, slots: int | None, tags: Iterable[str], runtime: Runtime
) -> dict[str, str]:
    """Return the Spark configuration of a job; the user's settings override others, and the user's tags are added.

    Args:
        job: The job.
        spark: Where it is submitted.
        requested: Its executors on YARN.
        slots: How many tasks run at once on a local master, None for any other.
        tags: The YARN tags by which the application is found.
        runtime: What this installation provides.
    """
    conf = dict(CONF)
    if slots:
        conf |= LOCAL_CONF
    if spark.master == "yarn":
        conf |= containers_conf(runtime.user, runtime.defaults)
        conf |= sizing.executor_settings(sizing.size(job.memory, job.operator, "memory"))
        conf |= sizing.driver_settings(sizing.driver_size(job.driver_memory, job.operator))
        conf |= placement.settings(job.placement)
        conf |= executors.settings(requested)
        for prefix in CONTAINER_ENVIRONMENTS:
            conf |= {f"{prefix}.{name}": value for name, value in job.env_vars.items()}
    if job.workers:
        conf |= WORKER_GROUP_CONF
    if daemon := _choose_daemon(job, spark, slots):
        conf["spark.python.daemon.module"] = daemon
    conf |= dict(job.conf or {})
    if spark.master == "yarn":
        decided = {**runtime.defaults, **conf}
        if AUTHENTICATION not in decided and decided.get(SHUFFLE_SERVICE, "false").lower() != "true":
            conf |= AUTHENTICATED_CONF
        conf[TAGS] = ",".join([*tags, *split_tags(job.conf or {})])
        if job.environment:
            archives = conf.get(environment.ARCHIVES) or runtime.defaults.get(environment.ARCHIVES, "")
            conf |= environment.packed_settings(job.environment, conf, archives)
    if daemon and slots:  # it starts before Spark adds py_files to the path
        conf[PYTHONPATH] = os.pathsep.join([*runtime.py_files, *filter(None, [conf.get(PYTHONPATH)])])
    return conf


def containers_conf(user: str | None, defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that all applications on YARN have.

    Python in their containers accesses HDFS as the user who submits, as Java does there: YARN may run containers as a
    user of its own.

    Args:
        user: The user; None with Kerberos, where the token of a container decides.
        defaults: The settings in spark-defaults.conf, of which the user stays.
    """
    names = (f"{role}.{USER}" for role in CONTAINER_ENVIRONMENTS)
    return YARN_CONF | {name: user for name in names if user and name not in defaults}


def container_environment(conf: Mapping[str, str], role: str) -> dict[str, str]:
    """Return the environment variables of a role's containers, which is one of `CONTAINER_ENVIRONMENTS`."""
    return {name.removeprefix(f"{role}."): value for name, value in conf.items() if name.startswith(f"{role}.")}


def _choose_daemon(job: Job, spark: SparkConnection, slots: int | None) -> str | None:
    """Return the module of the process that Python workers are forked from, None for Spark's own.

    On YARN, only worker groups gain from another one: when they restart.
    """
    if spark.master == "yarn":
        native = sizing.size(job.memory, job.operator, "memory").native
        return job.daemon if job.workers and native >= sizing.megabytes(DAEMON_NATIVE, "native") else None
    # On macOS a process that has imported torch cannot be forked safely.
    return job.daemon if slots and sys.platform == "linux" else None


def split_tags(conf: Mapping[str, str]) -> list[str]:
    """Return the YARN tags in a Spark configuration."""
    return [tag.strip() for tag in conf.get(TAGS, "").split(",") if tag.strip()]


def local_slots(master: str) -> int | None:
    """Return how many tasks run at once on a `local` master, None for any other master."""
    if master == "local":
        return 1
    if re.fullmatch(r"local\[\*(?:,\s*\d+)?\]", master):
        return os.cpu_count() or 1
    if match := re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?\]", master):
        return int(match[1])
    if match := re.fullmatch(r"local-cluster\[(\d+),\s*(\d+),\s*\d+\]", master):
        return int(match[1]) * int(match[2])
    return None
