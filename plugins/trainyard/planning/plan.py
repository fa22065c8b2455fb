"""The plan of an application: everything that submitting it takes, as a value that a dry run prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.errors import TrainyardError
from trainyard.files import uris
from trainyard.planning import executors
from trainyard.planning.executors import Executors
from trainyard.planning.job import Job, Preflight, Runtime, SparkConnection
from trainyard.planning.paths import COMMON_TAG, application_tag, attempt_uri, storage_tag
from trainyard.planning.placement import Placement
from trainyard.planning.sizing import Memory
from trainyard.planning.spark_conf import spark_conf
from trainyard.planning.target import Target
from trainyard.schemas.specs.task_key import TaskKey


@dataclass(frozen=True)
class Plan:
    """One application, before it is submitted.

    Attributes:
        operator: The operator's class and task id, for error messages.
        task_key: The task.
        storage: The storage root, a URI.
        name: The name of the application.
        tag: The YARN tag of the task's applications.
        spark: Where it is submitted.
        slots: How many tasks run at once, where all processes run on this machine; None on a cluster.
        modules: What the job's Python imports on the nodes, beside Spark and the user's code.
        workers: How many workers run at once; None for a job without a worker group.
        min_workers: How many must run at once.
        executors: The executors on YARN.
        memory: The memory of an executor.
        driver_memory: The memory of the driver.
        grow_memory_to: The largest container that a retry may ask for after a memory kill.
        placement: Queue, node labels and GPUs.
        preflight: How the plan is checked against the cluster before it is submitted: "strict", "warn" or "off".
        conf: The Spark configuration.
        program: The driver program.
        py_files: Archives of Python code.
        jars: Jars for driver and executors.
        packages: Maven coordinates of jars.
        files: Files for the working directory of each container.
        arguments: The arguments of the driver program.
        env: Environment variables that are added to those of the submitting process.
        spec_uri: The URI of the job spec of the newest attempt.
        attempt_uri: The URI of its copy that the application reads. A later attempt, which may have another spec, does
            not replace it while the application waits to start.
        spec: The fields of the job spec, as JSON.
    """

    operator: str
    task_key: TaskKey
    storage: str
    name: str
    tag: str
    spark: SparkConnection
    slots: int | None
    modules: tuple[str, ...]
    workers: int | None
    min_workers: int | None
    executors: Executors
    memory: Memory
    driver_memory: Memory
    grow_memory_to: str | None
    placement: Placement
    preflight: Preflight
    conf: Mapping[str, str]
    program: str
    py_files: tuple[str, ...]
    jars: tuple[str, ...]
    packages: tuple[str, ...]
    files: tuple[str, ...]
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    spec_uri: str
    attempt_uri: str
    spec: Mapping[str, Any]

    @property
    def queue(self) -> str:
        """The YARN queue."""
        return self.placement.queue or self.spark.queue or "default"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the plan requests and the master does not give, a sentence each."""
        gpus = self.placement.gpus_per_worker
        if not gpus or self.slots is None:
            return ()
        return (
            f"placement requests {gpus} GPU{'s' * (gpus > 1)} for each worker, and master {self.spark.master} assigns "
            "none: workers use the GPUs that torch finds on this machine, and else its CPU.",
        )

    @property
    def containers(self) -> str:
        """A description of the containers."""
        slots = self.slots
        if self.workers:
            minimum = f"{self.min_workers} to " if self.min_workers != self.workers else ""
            workers = f"1 driver + {minimum}{self.workers} worker{'s' * (self.workers > 1)}"
            if slots and slots < self.workers:
                workers += f", {slots} of them on {self.spark.master}"
            return workers if slots else f"{workers}{_of_cores(self.executors.cores_per_task)}"
        if slots:
            return f"1 process, {slots} slots"
        low, high = self.executors.min_count, self.executors.count
        number = f"{low} to {high} " if low else f"{high} " if high else ""
        return f"1 driver + {number}executor{'s' * (high != 1)}{_of_cores(self.executors.cores)}"


def build_plan(job: Job, target: Target, runtime: Runtime) -> Plan:
    """Build the plan of a job on a cluster. A pure function.

    Raises:
        TrainyardError: That cluster can never run the job, or `conf` has a setting that is not allowed there.
    """
    slots = target.slots
    min_workers = job.min_workers or job.workers
    target.check(job)
    if slots is None:
        _check_containers(job, min_workers)
    requested = job.executors
    if job.workers:
        shared = 1 if slots else job.placement.workers_per_container
        requested = executors.of_workers(job.workers, shared, job.cores_per_worker)
    task_key = job.task_key
    spec_uri = uris.join(task_key.directory, "specs", f"{task_key.task}.json")
    tag = application_tag(task_key)
    tags = (tag, COMMON_TAG, storage_tag(job.storage))
    return Plan(
        operator=job.operator,
        task_key=task_key,
        storage=job.storage,
        name=f"{task_key.dag_id}.{task_key.task}",
        tag=tag,
        spark=target.spark,
        slots=slots,
        modules=job.modules,
        workers=job.workers,
        min_workers=min_workers,
        executors=requested,
        memory=job.memory,
        driver_memory=job.driver_memory,
        grow_memory_to=job.grow_memory_to,
        placement=job.placement,
        preflight=job.preflight,
        conf=spark_conf(job, target, requested, tags, runtime),
        program=runtime.program,
        py_files=runtime.py_files,
        jars=job.jars,
        packages=job.packages,
        files=(*job.files, *target.list_files(job)),
        arguments=("--spec", attempt_uri(task_key)),
        env=dict(runtime.env) | target.list_variables(job) | {"TRAINYARD_TAG": tag},
        spec_uri=spec_uri,
        attempt_uri=attempt_uri(task_key),
        spec=job.spec,
    )


def _check_containers(job: Job, min_workers: int | None) -> None:
    shared = job.placement.workers_per_container
    for workers in filter(None, (min_workers, job.workers)):
        if workers % shared:
            raise TrainyardError(
                f"{job.operator}: workers_per_container={shared} does not divide workers={workers}; every container "
                "has the same number of workers. Write a divisor."
            )


def _of_cores(cores: int | None) -> str:
    return f" of {cores} core{'s' * (cores != 1)}" if cores else ""
