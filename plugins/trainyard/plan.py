"""The plan: all that submitting one application takes, as a value that can be printed instead."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainyard import placement, sizing
from trainyard.connections import SparkConnection
from trainyard.contract import storage
from trainyard.contract.errors import TrainyardError
from trainyard.contract.secrets import INSTEAD, secrets_in
from trainyard.contract.spec import Place
from trainyard.placement import Placement
from trainyard.sizing import Memory

LOCAL_ENV = {"SPARK_LOCAL_IP": "127.0.0.1"}
LOCAL_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
CONF = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.files.openCostInBytes": "65536",  # Spark's 4 MB makes a task of every 32 small files
    "spark.ui.showConsoleProgress": "false",
}
GANG_CONF = {
    "spark.dynamicAllocation.enabled": "false",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "2s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "5",
    "spark.speculation": "false",
}
SHIPPED = "./__spark_conf__/__hadoop_conf__"
"""Where Spark unpacks the client's Hadoop configuration in each container: Python reads HDFS by it, as Spark does."""
YARN_CONF = {
    "spark.yarn.maxAppAttempts": "1",
    "spark.yarn.submit.waitAppCompletion": "false",
    "spark.yarn.appMasterEnv.HADOOP_CONF_DIR": SHIPPED,
    "spark.yarn.appMasterEnv.PYTHONSAFEPATH": "1",
    "spark.yarn.appMasterEnv.PYTHONUNBUFFERED": "1",
    "spark.executorEnv.HADOOP_CONF_DIR": SHIPPED,
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.executorEnv.PYTHONUNBUFFERED": "1",
}
PYTHONPATH = "spark.executorEnv.PYTHONPATH"
OPTION_OF = {
    "spark.driver.memory": "driver_memory=Memory(heap=...)",
    "spark.driver.memoryOverhead": "driver_memory=Memory(native=...)",
    "spark.executor.memory": "memory=Memory(heap=...)",
    "spark.executor.memoryOverhead": "memory=Memory(native=...)",
    "spark.executor.pyspark.memory": "memory=Memory(pyspark=...)",
    "spark.memory.offHeap.size": "memory=Memory(off_heap=...)",
    "spark.executor.resource.gpu.amount": "placement=Placement(gpus_per_worker=...)",
    "spark.yarn.queue": "placement=Placement(queue=...)",
    "spark.yarn.am.nodeLabelExpression": "placement=Placement(driver_label=...)",
    "spark.yarn.executor.nodeLabelExpression": "placement=Placement(node_label=...)",
}
"""What decides a container's size and place on YARN is said once, where it can be held against the cluster."""


@dataclass(frozen=True)
class Job:
    """What an operator asks for. `workers` ranks run at once, `least_workers` must; None when it is no gang.

    `storage` is the URI below which things are stored; `modules` is what the job's Python imports on the
    nodes, beside Spark's and the user's own.
    """

    operator: str
    place: Place
    storage: str
    spec: Mapping[str, Any]
    modules: tuple[str, ...] = ()
    workers: int | None = None
    least_workers: int | None = None
    conf: Mapping[str, str] | None = None
    memory: Memory = field(default_factory=Memory)
    driver_memory: Memory = field(default_factory=Memory)
    grow_memory_to: str | None = None
    placement: Placement = field(default_factory=Placement)


@dataclass(frozen=True)
class Runtime:
    """What this installation brings: the driver program, the code archive, the environment."""

    program: str
    py_files: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """One application, before it is submitted. `env` is added to the submitting process's own."""

    operator: str
    place: Place
    storage: str
    name: str
    tag: str
    spark: SparkConnection
    modules: tuple[str, ...]
    workers: int | None
    least_workers: int | None
    memory: Memory
    driver_memory: Memory
    grow_memory_to: str | None
    placement: Placement
    conf: Mapping[str, str]
    program: str
    py_files: tuple[str, ...]
    files: tuple[str, ...]
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    spec_uri: str
    spec: Mapping[str, Any]

    @property
    def queue(self) -> str:
        """The queue that it is submitted to, on YARN."""
        return self.placement.queue or self.spark.queue or "default"

    @property
    def containers(self) -> str:
        """What it runs in, in words."""
        slots = local_slots(self.spark.master)
        if self.workers:
            few = f"{self.least_workers} to " if self.least_workers != self.workers else ""
            return f"1 driver + {few}{self.workers} rank{'s' * (self.workers > 1)}"
        return f"1 process, {slots} slots" if slots else "1 driver + executors"


def make(job: Job, spark: SparkConnection, runtime: Runtime) -> Plan:
    """The plan for `job` on the cluster that `spark` names.

    Raises TrainyardError when that cluster can never run it.
    """
    slots = local_slots(spark.master)
    least = job.least_workers or job.workers
    if least and slots is not None and least > slots:
        raise TrainyardError(
            f"{job.operator}: workers={least} ranks must run at once, and master {spark.master} has "
            f"{slots} slot{'s' * (slots != 1)}. Write local[{least}] as the host of connection "
            f"{spark.conn_id!r}, or workers={slots}."
        )
    if spark.master == "yarn" and spark.deploy_mode != "cluster":
        raise TrainyardError(
            f"{job.operator}: connection {spark.conn_id!r} has deploy-mode {spark.deploy_mode or 'client'}; on YARN "
            'the driver must outlive processes of Airflow. Write {"deploy-mode": "cluster"} in its extra.'
        )
    if found := secrets_in((job.conf or {}).items()):
        raise TrainyardError(f"{job.operator}: conf has {', '.join(found)}, and {INSTEAD}.")
    for name in job.conf or {}:
        if spark.master == "yarn" and name in OPTION_OF:
            raise TrainyardError(f"{job.operator}: conf sets {name}, which is computed; write {OPTION_OF[name]}.")
    together = job.placement.ranks_per_container
    for ranks in (least or 1, job.workers or 1):
        if ranks % together:
            raise TrainyardError(
                f"{job.operator}: ranks_per_container={together} does not divide workers={ranks}; every "
                "container holds as many ranks. Write a divisor."
            )
    place = job.place
    spec_uri = storage.join(place.directory, "specs", f"{place.task}.json")
    tag = application_tag(place)
    return Plan(
        operator=job.operator,
        place=place,
        storage=job.storage,
        name=f"{place.dag_id}.{place.task}",
        tag=tag,
        spark=spark,
        modules=job.modules,
        workers=job.workers,
        least_workers=least,
        memory=job.memory,
        driver_memory=job.driver_memory,
        grow_memory_to=job.grow_memory_to,
        placement=job.placement,
        conf=_conf(job, spark, slots, tag, runtime),
        program=runtime.program,
        py_files=runtime.py_files,
        files=placement.files(job.placement) if spark.master == "yarn" else (),
        arguments=("--spec", spec_uri),
        env=dict(runtime.env) | (LOCAL_ENV if slots else {}) | {"TRAINYARD_TAG": tag},
        spec_uri=spec_uri,
        spec=job.spec,
    )


def _conf(job: Job, spark: SparkConnection, slots: int | None, tag: str, runtime: Runtime) -> dict[str, str]:
    """Spark's configuration, the user's own last."""
    conf = dict(CONF)
    if slots:
        conf |= LOCAL_CONF
    if spark.master == "yarn":
        conf |= YARN_CONF | {"spark.yarn.tags": tag}
        conf |= sizing.executor_settings(sizing.size(job.memory, job.operator, "memory"))
        conf |= sizing.driver_settings(sizing.size(job.driver_memory, job.operator, "driver_memory"))
        conf |= placement.settings(job.placement)
    if job.workers:
        conf |= GANG_CONF
    if job.workers and slots:
        conf["spark.python.daemon.module"] = "trainer.daemon"
    if job.workers and not slots:
        together = job.placement.ranks_per_container
        conf |= {"spark.executor.instances": str(job.workers // together), "spark.executor.cores": str(together)}
    conf |= dict(job.conf or {})
    if job.workers and slots:  # the daemon starts before Spark puts files on the path
        conf[PYTHONPATH] = os.pathsep.join([*runtime.py_files, *filter(None, [conf.get(PYTHONPATH)])])
    return conf


def local_slots(master: str) -> int | None:
    """How many tasks run at once on a `local` master, None for any other."""
    if master == "local":
        return 1
    if re.fullmatch(r"local\[\*(?:,\s*\d+)?\]", master):
        return os.cpu_count() or 1
    if found := re.fullmatch(r"local\[(\d+)(?:,\s*\d+)?\]", master):
        return int(found[1])
    if found := re.fullmatch(r"local-cluster\[(\d+),\s*(\d+),\s*\d+\]", master):
        return int(found[1]) * int(found[2])
    return None


def application_tag(place: Place) -> str:
    """Names the application of a task: the same for each try of it, another for any other task."""
    identity = "\0".join([place.directory, place.dag_id, place.run_id, place.task])
    return f"trainyard-{place.task[:40]}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def run_directory(root: str, dag_id: str, run_id: str) -> str:
    """Where everything about one DAG run is kept. Distinct run ids give distinct directories."""
    return storage.join(root, "runs", path_safe(dag_id), path_safe(run_id))


def path_safe(name: str) -> str:
    """`name` as one step of a path; distinct names stay distinct."""
    safe = re.sub(r"[^A-Za-z0-9._-]|^\.", "_", name)
    return safe if safe == name else f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
