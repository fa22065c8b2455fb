"""The Spark configuration of an application on YARN. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from trainyard.errors import TrainyardError
from trainyard.planning import executors, placement, sizing
from trainyard.planning.executors import Executors
from trainyard.planning.job import Job, Runtime
from trainyard.planning.paths import COMMON_TAG, is_reserved_tag
from trainyard.planning.shipping import environment

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


SIGTERM = Path(executors.__file__).parent / "sigterm.sh"
GROUP_CONF = {
    # An executor whose container gets a SIGTERM runs on until its workers have saved their state, or YARN kills it.
    "spark.decommission.enabled": "true",
    "spark.executor.decommission.signal": "TERM",
    "spark.executorEnv.BASH_ENV": f"./{SIGTERM.name}",
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
    "spark.executor.resource.gpu.amount": "gpus_per_executor=",
    "spark.yarn.queue": "placement=Placement(queue=...)",
    "spark.yarn.am.nodeLabelExpression": "placement=Placement(driver_label=...)",
    "spark.yarn.executor.nodeLabelExpression": "placement=Placement(node_label=...)",
}
"""Settings that decide the number, size and nodes of containers on YARN, and the option to use instead: it is checked
against the cluster."""


OPTION_OF_GROUP_SETTING = {
    "spark.executor.cores": "cores_per_worker=, or placement=Placement(workers_per_container=...)",
    "spark.executor.resource.gpu.amount": "gpus_per_worker=",
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


def list_settings(job: Job, requested: Executors, runtime: Runtime) -> dict[str, str]:
    """Return the settings that the user's override.

    Args:
        job: The job.
        requested: Its executors.
        runtime: What this installation provides.
    """
    conf = containers_conf(runtime.user, runtime.defaults)
    conf |= sizing.executor_settings(sizing.size(job.memory, job.operator, "memory"))
    conf |= sizing.driver_settings(sizing.driver_size(job.driver_memory, job.operator))
    conf |= placement.settings(job.placement)
    conf |= executors.settings(requested)
    conf |= executors.gpu_settings(job.gpus_per_container, job.gpus_per_task)
    if job.gpus_per_container:
        conf["spark.executor.resource.gpu.discoveryScript"] = f"./{placement.DISCOVERY.name}"
    if job.workers:
        conf |= GROUP_CONF
    for prefix in CONTAINER_ENVIRONMENTS:
        conf |= {f"{prefix}.{name}": value for name, value in job.env_vars.items()}
    return conf


def list_files(job: Job) -> tuple[str, ...]:
    """Return the files that each container needs in its working directory."""
    discovery = [str(placement.DISCOVERY)] if job.gpus_per_container else []
    return (*discovery, *([str(SIGTERM)] if job.workers else []))


def list_final_settings(job: Job, conf: Mapping[str, str], tags: Iterable[str], runtime: Runtime) -> dict[str, str]:
    """Return the settings that depend on the user's: authentication, tags, and the packed environment.

    Args:
        job: The job.
        conf: The settings so far, with the user's.
        tags: The YARN tags by which the application is found; the user's are added.
        runtime: What this installation provides.
    """
    decided = {**runtime.defaults, **conf}
    final = {TAGS: ",".join([*tags, *split_tags(job.conf or {})])}
    if AUTHENTICATION not in decided and decided.get(SHUFFLE_SERVICE, "false").lower() != "true":
        final |= AUTHENTICATED_CONF
    if job.environment:
        archives = conf.get(environment.ARCHIVES) or runtime.defaults.get(environment.ARCHIVES, "")
        final |= environment.packed_settings(job.environment, conf, archives)
    return final


def choose_daemon(job: Job) -> str | None:
    """Return the module of the process that Python workers are forked from, None for Spark's own.

    Only worker groups gain from another one: when they restart.
    """
    native = sizing.size(job.memory, job.operator, "memory").native
    return job.daemon if job.workers and native >= sizing.megabytes(DAEMON_NATIVE, "native") else None


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


def split_tags(conf: Mapping[str, str]) -> list[str]:
    """Return the YARN tags in a Spark configuration."""
    return [tag.strip() for tag in conf.get(TAGS, "").split(",") if tag.strip()]


def check_conf(job: Job) -> None:
    """Check the user's Spark configuration. Raises TrainyardError for a setting that has an option, or is reserved."""
    conf = job.conf or {}
    options = OPTION_OF_SETTING | (OPTION_OF_GROUP_SETTING if job.workers else {})
    for name in conf:
        if name in options:
            raise TrainyardError(f"{job.operator}: conf sets {name}, which is computed; write {options[name]}.")
        if name in RESERVED:
            raise TrainyardError(
                f"{job.operator}: conf sets {name}={conf[name]!r}, which Trainyard decides: {RESERVED[name]}. "
                "Leave it out."
            )
    for tag in (tags := split_tags(conf)):
        if not re.fullmatch(r"[!-~]{1,100}", tag):
            raise TrainyardError(
                f"{job.operator}: conf sets {TAGS}={conf[TAGS]!r}; a tag of YARN has at most 100 characters of ASCII, "
                "without spaces."
            )
        if is_reserved_tag(tag):
            raise TrainyardError(
                f"{job.operator}: conf sets {TAGS}={conf[TAGS]!r}; Trainyard finds its applications by tags that begin "
                f"with {COMMON_TAG}-. Write another tag instead of {tag!r}."
            )
    if len(tags) > MAX_USER_TAGS:
        raise TrainyardError(
            f"{job.operator}: conf sets {TAGS}={conf[TAGS]!r}; YARN allows ten tags and Trainyard needs four, so write "
            f"at most {MAX_USER_TAGS}."
        )
