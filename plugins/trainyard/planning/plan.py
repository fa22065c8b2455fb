"""The plan: all that submitting one application takes, as a value that can be printed instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.planning import placement
from trainyard.planning.connection import SparkConnection
from trainyard.planning.job import Job, Runtime
from trainyard.planning.paths import application_tag
from trainyard.planning.placement import Placement
from trainyard.planning.sizing import Memory
from trainyard.planning.spark_conf import LOCAL_ENV, OPTION_OF_SETTING, local_slots, spark_conf
from trainyard.schemas.secrets import INSTEAD, secrets_in
from trainyard.schemas.specs.task_key import TaskKey


@dataclass(frozen=True)
class Plan:
    """One application, before it is submitted. `env` is added to the submitting process's own."""

    operator: str
    task_key: TaskKey
    storage: str
    name: str
    tag: str
    spark: SparkConnection
    modules: tuple[str, ...]
    workers: int | None
    min_workers: int | None
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
            few = f"{self.min_workers} to " if self.min_workers != self.workers else ""
            return f"1 driver + {few}{self.workers} rank{'s' * (self.workers > 1)}"
        return f"1 process, {slots} slots" if slots else "1 driver + executors"


def build_plan(job: Job, spark: SparkConnection, runtime: Runtime) -> Plan:
    """The plan for `job` on the cluster that `spark` names.

    Raises TrainyardError when that cluster can never run it.
    """
    slots = local_slots(spark.master)
    least = job.min_workers or job.workers
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
        if spark.master == "yarn" and name in OPTION_OF_SETTING:
            raise TrainyardError(
                f"{job.operator}: conf sets {name}, which is computed; write {OPTION_OF_SETTING[name]}."
            )
    together = job.placement.workers_per_container
    for ranks in (least or 1, job.workers or 1):
        if ranks % together:
            raise TrainyardError(
                f"{job.operator}: workers_per_container={together} does not divide workers={ranks}; every "
                "container holds as many ranks. Write a divisor."
            )
    place = job.task_key
    spec_uri = storage.join(place.directory, "specs", f"{place.task}.json")
    tag = application_tag(place)
    return Plan(
        operator=job.operator,
        task_key=place,
        storage=job.storage,
        name=f"{place.dag_id}.{place.task}",
        tag=tag,
        spark=spark,
        modules=job.modules,
        workers=job.workers,
        min_workers=least,
        memory=job.memory,
        driver_memory=job.driver_memory,
        grow_memory_to=job.grow_memory_to,
        placement=job.placement,
        conf=spark_conf(job, spark, slots, tag, runtime),
        program=runtime.program,
        py_files=runtime.py_files,
        files=placement.files(job.placement) if spark.master == "yarn" else (),
        arguments=("--spec", spec_uri),
        env=dict(runtime.env) | (LOCAL_ENV if slots else {}) | {"TRAINYARD_TAG": tag},
        spec_uri=spec_uri,
        spec=job.spec,
    )
