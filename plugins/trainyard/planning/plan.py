"""The plan of an application: everything that submitting it takes, as a value that a dry run prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainyard.errors import TrainyardError
from trainyard.files import uris
from trainyard.planning import executors
from trainyard.planning.executors import Executors
from trainyard.planning.job import Job, Runtime, SparkConnection
from trainyard.planning.paths import COMMON_TAG, application_tag, attempt_uri, storage_tag
from trainyard.planning.spark_conf import spark_conf
from trainyard.planning.target import Target


@dataclass(frozen=True)
class Plan:
    """One application, before it is submitted.

    Attributes:
        job: What the operator requests.
        spark: Where it is submitted.
        slots: How many tasks run at once, where all processes run on this machine; None on a cluster.
        executors: The executors on a cluster.
        conf: The Spark configuration.
        program: The driver program.
        py_files: Archives of Python code.
        files: Files for the working directory of each container.
        env: Environment variables that are added to those of the submitting process.
    """

    job: Job
    spark: SparkConnection
    slots: int | None
    executors: Executors
    conf: Mapping[str, str]
    program: str
    py_files: tuple[str, ...]
    files: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of the application."""
        return f"{self.job.task_key.dag_id}.{self.job.task_key.task}"

    @property
    def tag(self) -> str:
        """The YARN tag of the task's applications."""
        return application_tag(self.job.task_key)

    @property
    def spec_uri(self) -> str:
        """The URI of the job spec of the newest attempt."""
        return uris.join(self.job.task_key.directory, "specs", f"{self.job.task_key.task}.json")

    @property
    def attempt_uri(self) -> str:
        """The URI of its copy that the application reads.

        A later attempt, which may have another spec, does not replace it while the application waits to start.
        """
        return attempt_uri(self.job.task_key)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the driver program."""
        return ("--spec", self.attempt_uri)

    def with_job(self, **changes: Any) -> Plan:
        """Return the plan with other fields of the job; those of its configuration and its files stay as they are."""
        return replace(self, job=replace(self.job, **changes))

    @property
    def queue(self) -> str:
        """The YARN queue."""
        return self.job.placement.queue or self.spark.queue or "default"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the plan requests and the master does not give, a sentence each."""
        gpus, owner = self.job.gpus, "worker" if self.job.workers else "executor"
        if not gpus or self.slots is None:
            return ()
        return (
            f"gpus_per_{owner}={gpus} does not apply: master {self.spark.master} assigns no GPUs. Processes use those "
            "that torch finds on this machine, and else its CPU.",
        )

    @property
    def containers(self) -> str:
        """A description of the containers."""
        slots = self.slots
        if self.job.workers:
            minimum = f"{self.job.needed_workers} to " if self.job.needed_workers != self.job.workers else ""
            workers = f"1 driver + {minimum}{self.job.workers} worker{'s' * (self.job.workers > 1)}"
            if slots and slots < self.job.workers:
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
    target.check(job)
    requested = job.executors
    if target.slots is None:
        _check_containers(job)
    if job.workers:
        shared = 1 if target.slots else job.placement.workers_per_container
        requested = executors.of_workers(job.workers, shared, job.cores_per_worker)
    elif target.slots is None:
        requested = executors.with_gpus(requested, job.gpus, {**runtime.defaults, **(job.conf or {})}, job.operator)
    tag = application_tag(job.task_key)
    tags = (tag, COMMON_TAG, storage_tag(job.storage))
    return Plan(
        job=job,
        spark=target.spark,
        slots=target.slots,
        executors=requested,
        conf=spark_conf(job, target, requested, tags, runtime),
        program=runtime.program,
        py_files=runtime.py_files,
        files=(*job.files, *target.list_files(job)),
        env=dict(runtime.env) | target.list_variables(job) | {"TRAINYARD_TAG": tag},
    )


def _check_containers(job: Job) -> None:
    shared = job.placement.workers_per_container
    for workers in filter(None, (job.needed_workers, job.workers)):
        if workers % shared:
            raise TrainyardError(
                f"{job.operator}: workers_per_container={shared} does not divide workers={workers}; every container "
                "has the same number of workers. Write a divisor."
            )


def _of_cores(cores: int | None) -> str:
    return f" of {cores} core{'s' * (cores != 1)}" if cores else ""
