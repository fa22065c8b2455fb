"""Decide how many executors an application requests, and with how many cores and GPUs. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainyard.errors import TrainyardError


@dataclass(frozen=True, kw_only=True)
class Executors:
    """The executors of an application. What is None is left to Spark's configuration.

    Attributes:
        count: How many there are; with dynamic allocation the largest number.
        min_count: The smallest number, with dynamic allocation; None without it.
        cores: The cores of each.
        cores_per_task: The cores of each Spark task, of which an executor runs as many at once as it has cores for.
    """

    count: int | None = None
    min_count: int | None = None
    cores: int | None = None
    cores_per_task: int | None = None


def of_workers(workers: int, workers_per_container: int, cores_per_worker: int) -> Executors:
    """Return the executors of a worker group: a worker is a Spark task with all cores of its own."""
    return Executors(
        count=workers // workers_per_container,
        cores=workers_per_container * cores_per_worker,
        cores_per_task=cores_per_worker,
    )


def of_stage(executors: int | tuple[int, int] | None, cores_per_executor: int | None) -> Executors:
    """Return the executors of a Spark stage; a pair (min, max) is dynamic allocation."""
    low, high = executors if isinstance(executors, tuple) else (None, executors)
    return Executors(count=high, min_count=low, cores=cores_per_executor)


def with_gpus(executors: Executors, gpus: int, conf: Mapping[str, str], operator: str) -> Executors:
    """Return the executors of a Spark stage with cores for as many tasks at once as each has GPUs.

    Args:
        executors: The executors, as requested.
        gpus: The GPUs of each, of which a task uses one.
        conf: Spark's configuration.
        operator: The operator, for the message.

    Raises:
        TrainyardError: The requested cores are fewer.
    """
    cores_per_task = _read_number(conf, "spark.task.cpus")
    needed = gpus * cores_per_task
    if executors.cores is None:
        return replace(executors, cores=needed) if _read_number(conf, "spark.executor.cores") < needed else executors
    if executors.cores < needed:
        raise TrainyardError(
            f"{operator}: cores_per_executor={executors.cores} is less than what the tasks of gpus_per_executor={gpus} "
            f"use, {needed}: one GPU and spark.task.cpus={cores_per_task} each. Write cores_per_executor={needed}, or "
            "fewer GPUs."
        )
    return executors


def settings(executors: Executors) -> dict[str, str]:
    """Return Spark's settings for executors on YARN."""
    numbers = {"spark.executor.cores": executors.cores, "spark.task.cpus": executors.cores_per_task}
    if executors.min_count is None:
        return _as_text(numbers | {"spark.executor.instances": executors.count})
    # Without shuffle tracking dynamic allocation needs a shuffle service on every node.
    dynamic = {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true"}
    limits = {"minExecutors": executors.min_count, "maxExecutors": executors.count}
    return _as_text(numbers | {f"spark.dynamicAllocation.{name}": number for name, number in limits.items()}) | dynamic


def gpu_settings(per_container: int, per_task: int) -> dict[str, str]:
    """Return Spark's settings for GPUs that the cluster counts; none without any."""
    if not per_container:
        return {}
    return {"spark.executor.resource.gpu.amount": str(per_container), "spark.task.resource.gpu.amount": str(per_task)}


def _read_number(conf: Mapping[str, str], name: str) -> int:
    """Return a setting whose default is 1; of a text that is no number, which Spark refuses, too."""
    return int(text) if (text := conf.get(name, "")).isdecimal() else 1


def _as_text(numbers: dict[str, int | None]) -> dict[str, str]:
    return {name: str(number) for name, number in numbers.items() if number is not None}
