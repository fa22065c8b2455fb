"""Spark standalone: executors on the workers of a standalone master, and the driver where the task runs."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from trainyard.clusters.base import Cluster, NamedCheck, Needs
from trainyard.errors import TrainyardError
from trainyard.planning import executors, sizing
from trainyard.planning.executors import Executors
from trainyard.planning.finding import Finding
from trainyard.planning.job import Job, Runtime
from trainyard.planning.placement import Placement
from trainyard.planning.runtime import submitting_user

if TYPE_CHECKING:
    from trainyard.backends.base import Backend, Waiting
    from trainyard.planning.plan import Plan

CONF = {
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.executorEnv.PYTHONUNBUFFERED": "1",
    "spark.ui.enabled": "false",  # else each driver opens a port where Airflow runs, without authentication
}
GROUP_SETTINGS = ("spark.cores.max", "spark.executor.cores", "spark.executor.instances", "spark.task.cpus")
"""Settings by which a worker group gets exactly one slot for each worker."""
ANSWER_SECONDS = 5.0


class StandaloneCluster(Cluster):
    """A standalone master, or several of which one is active, and its workers."""

    NAME = "Spark standalone"
    MASTER = r"spark://[^\s/@,]+:\d+(,[^\s/@,]+:\d+)*"

    def check(self, job: Job) -> None:
        """Refuse a driver on the cluster, and options that a standalone master has nothing for."""
        if self.spark.deploy_mode == "cluster":
            raise TrainyardError(
                f"{job.operator}: connection {self.spark.conn_id!r} has deploy-mode cluster, and a standalone master "
                "runs no drivers in Python. Remove deploy-mode from its extra; the driver then runs with the task."
            )
        clauses = [
            f"{field}={value!r} does not apply on {self.NAME}: {instead}"
            for field, value, instead in _find_refused(job)
        ]
        if clauses:
            raise TrainyardError(f"{job.operator}: {'; '.join(clauses)}.")

    def list_settings(self, job: Job, requested: Executors, runtime: Runtime) -> dict[str, str]:
        """Return the sizes of the executors and of the driver, and the environment of the executors."""
        conf = dict(CONF)
        conf |= sizing.executor_settings(sizing.size(job.memory, job.operator, "memory"))
        conf |= sizing.driver_settings(sizing.driver_size(job.driver_memory, job.operator))
        conf |= executors.settings(requested) | _count_cores(requested)
        conf |= executors.gpu_settings(job.gpus_per_container, job.gpus_per_task)
        if runtime.user:
            conf["spark.executorEnv.HADOOP_USER_NAME"] = runtime.user
        return conf | {f"spark.executorEnv.{name}": value for name, value in job.env_vars.items()}

    def list_variables(self, job: Job) -> dict[str, str]:
        """Return the environment variables of the driver."""
        return dict(job.env_vars)

    def create_backend(self, plan: Plan, waiting: Waiting) -> Backend:
        """Return the backend that runs the driver as a child of this process."""
        from trainyard.backends.local import LocalBackend

        return LocalBackend(plan)

    def find_user(self) -> str:
        """Return the submitting user: workers run executors as a user of their own."""
        return submitting_user()

    def list_checks(self, conn_id: str, of_stage: Needs, of_training: Needs) -> Iterator[NamedCheck]:
        """Return the check that a master answers."""
        yield "standalone master", partial(find_master, self.spark.master)

    def check_plans(self, plans: Sequence[Plan], writes: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
        """Return whether the master of each plan answers; its workers are not asked."""
        for spark in dict.fromkeys(plan.spark for plan in plans):
            stage = next(plan.job.task_key.task for plan in plans if plan.spark == spark)
            try:
                yield Finding(stage, "master", spark.master, f"{find_master(spark.master)} answers")
            except TrainyardError as error:
                yield Finding(stage, "master", spark.master, "no answer", str(error))


def find_master(master: str) -> str:
    """Return the first host and port of a master URL that answers. Raises TrainyardError if none does."""
    problems = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
            return address
        except OSError as error:
            problems.append(f"{address}: {error}")
    raise TrainyardError(
        f"no standalone master answers ({'; '.join(problems)}). Start one, or correct the host and port of the Spark "
        "connection."
    )


def _find_refused(job: Job) -> Iterator[tuple[str, object, str]]:
    """Yield each option that only YARN has: its name, its value, and what to write instead."""
    placement, conf = job.placement, job.conf or {}
    if placement.queue:
        instead = "a standalone master has no queues, and offers cores in the order of submission; leave it out"
        yield "placement.queue", placement.queue, instead
    for field in ("node_label", "driver_label"):
        if label := getattr(placement, field):
            instead = (
                "its workers have no labels; leave it out, and connect to a master whose workers are the nodes "
                "wanted (spark_conn_id=), or request GPUs by gpus_per_worker or gpus_per_executor"
            )
            yield f"placement.{field}", label, instead
    if placement.isolation != Placement.isolation:
        instead = "its workers count and assign GPUs themselves; leave it out"
        yield "placement.isolation", placement.isolation, instead
    if job.environment:
        instead = (
            "packed environments need containers of YARN; remove it from the trainyard connection, and install Python "
            "with its packages at one path on all workers (spark.pyspark.python in conf names another path)"
        )
        yield "environment", job.environment, instead
    if job.grow_memory_to:
        instead = "a standalone worker does not limit native memory, so no attempt is killed for it; leave it out"
        yield "grow_memory_to", job.grow_memory_to, instead
    for name in GROUP_SETTINGS if job.workers else ():
        if name in conf:
            yield f"conf {name}", conf[name], "it is computed; write workers= and cores_per_worker="


def _count_cores(requested: Executors) -> dict[str, str]:
    """Return the settings that limit an application to the requested executors; without a number it may use all."""
    if not requested.count:
        return {}
    cores = requested.cores or 1
    return {
        "spark.executor.cores": str(cores),
        "spark.cores.max": str(requested.count * cores),
        # Else Spark counts the executors that have started when a source is divided.
        "spark.default.parallelism": str(max(2, (requested.min_count or requested.count) * cores)),
    }
