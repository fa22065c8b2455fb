"""What an operator requests, where it is submitted, and what this installation provides, before they become a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from trainyard.errors import TrainyardError
from trainyard.planning.executors import Executors
from trainyard.planning.placement import Placement
from trainyard.planning.sizing import Memory
from trainyard.schemas.specs.task_key import TaskKey

Preflight = Literal["strict", "warn", "off"]
"""What happens to a plan that YARN would refuse: it fails, it is logged and submitted, or it is not checked."""


@dataclass(frozen=True)
class Job:
    """What an operator requests.

    Attributes:
        operator: The operator's class and task id, for error messages.
        task_key: The task.
        storage: The storage root, a URI.
        spec: The fields of the job spec, as JSON.
        modules: What the job's Python imports on the nodes, beside Spark and the user's code.
        daemon: The module of a process that Spark may fork Python workers from; None for Spark's own.
        workers: How many workers run at once; None for a job without a worker group.
        min_workers: How many must run at once, if it is not `workers`.
        cores_per_worker: The cores of each worker on YARN.
        gpus: The GPUs of each worker; without a worker group, those of each executor.
        executors: The executors of a job without a worker group.
        jars: Jars for driver and executors.
        packages: Maven coordinates of jars.
        files: Files for the working directory of each container.
        env_vars: Environment variables of driver and executors.
        conf: The user's Spark configuration.
        memory: The memory of an executor.
        driver_memory: The memory of the driver.
        grow_memory_to: The largest container that a retry may ask for after a memory kill.
        placement: Queue and node labels.
        preflight: How the plan is checked against the cluster before it is submitted.
        environment: The URI of a packed environment with Python and Java, None where the nodes have their own.
    """

    operator: str
    task_key: TaskKey
    storage: str
    spec: Mapping[str, Any]
    modules: tuple[str, ...] = ()
    daemon: str | None = None
    workers: int | None = None
    min_workers: int | None = None
    cores_per_worker: int = 1
    gpus: int = 0
    executors: Executors = field(default_factory=Executors)
    jars: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    env_vars: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] | None = None
    memory: Memory = field(default_factory=Memory)
    driver_memory: Memory = field(default_factory=Memory)
    grow_memory_to: str | None = None
    placement: Placement = field(default_factory=Placement)
    preflight: Preflight = "strict"
    environment: str | None = None

    @property
    def needed_workers(self) -> int | None:
        """How many workers must run at once; None for a job without a worker group."""
        return self.min_workers or self.workers

    @property
    def gpus_per_container(self) -> int:
        """The GPUs that each container requests; 0 where its cluster does not count them."""
        shared = self.placement.workers_per_container if self.workers else 1
        return self.gpus * shared if self.placement.counts_gpus else 0

    @property
    def gpus_per_task(self) -> int:
        """The GPUs of each Spark task: all of a worker, and one of a task without a worker group."""
        return self.gpus if self.workers else min(self.gpus, 1)


@dataclass(frozen=True)
class SparkConnection:
    """The content of an Airflow connection of type `spark`: master, and on YARN queue and deploy mode."""

    conn_id: str
    master: str
    queue: str | None = None
    deploy_mode: str | None = None


@dataclass(frozen=True)
class Runtime:
    """What this installation provides.

    Attributes:
        program: The driver program.
        py_files: The code archive.
        env: Environment variables of spark-submit.
        defaults: The settings in spark-defaults.conf.
        user: The user that containers on YARN access HDFS as; None with Kerberos, where their token decides.
    """

    program: str
    py_files: tuple[str, ...]
    env: Mapping[str, str]
    defaults: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None


def check_preflight(value: str, where: str) -> Preflight:
    """Return a value of the option `preflight`. Raises TrainyardError, which begins with `where`, for another one."""
    for known in get_args(Preflight):
        if value == known:
            return known  # type: ignore[no-any-return]
    raise TrainyardError(f"{where}: preflight is not valid; write one of {', '.join(get_args(Preflight))}.")
