"""Profiles of a connection: what the tasks that name one request on a cluster. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

from pydantic import ConfigDict, NonNegativeInt

from trainyard.planning.job import Job
from trainyard.planning.placement import Name, Placement
from trainyard.planning.sizing import Memory, split
from trainyard.schemas.specs.fields import SparkText


@dataclass(frozen=True, kw_only=True)
class Profile(Placement):
    """A placement, and what else tasks request, under a name that they refer to by `profile=`.

    Args:
        gpus_per_worker: The GPUs of each worker.
        gpus_per_executor: The GPUs of each executor of a Spark stage.
        memory: The memory of each executor in all, such as "8g".
        driver_memory: The memory of the driver in all.
        environment: The URI of a packed environment, instead of that of the connection.
        conf: Spark configuration.
        pool: The Airflow pool of the tasks.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    gpus_per_worker: NonNegativeInt = 0
    gpus_per_executor: NonNegativeInt = 0
    memory: Name | None = None
    driver_memory: Name | None = None
    environment: Name | None = None
    conf: Mapping[str, SparkText] = field(default_factory=dict)
    pool: Name | None = None


def apply_profile(profile: Profile, job: Job, memory: Memory, driver_memory: Memory) -> Job:
    """Return a job with what its profile says, where the job's own options are the default ones.

    Args:
        profile: The profile.
        job: The job, with the options of its task.
        memory: The memory of an executor of this kind of job, if its task has no option.
        driver_memory: That of its driver.

    Raises:
        TrainyardError: A size of the profile is not valid.
    """
    placement = {
        field.name: getattr(profile, field.name)
        for field in fields(Placement)
        if getattr(job.placement, field.name) == field.default
    }
    return replace(
        job,
        placement=replace(job.placement, **placement),
        gpus=job.gpus or (profile.gpus_per_worker if job.workers else profile.gpus_per_executor),
        memory=_choose("memory", job.memory, profile.memory, memory),
        driver_memory=_choose("driver_memory", job.driver_memory, profile.driver_memory, driver_memory),
        environment=profile.environment or job.environment,
        conf={**profile.conf, **(job.conf or {})},
    )


def _choose(option: str, memory: Memory, total: str | None, default: Memory) -> Memory:
    return split(total, default, f"profile: {option}") if total and memory == default else memory
