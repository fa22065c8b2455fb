"""Profiles of a connection: what the tasks that name one request on a cluster. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Annotated

from pydantic import NonNegativeInt, PositiveInt, StringConstraints

from trainyard.planning.job import Job
from trainyard.planning.placement import Isolation, Placement
from trainyard.planning.sizing import Memory, split
from trainyard.schemas.document import Part
from trainyard.schemas.specs.fields import SparkText

_Text = Annotated[str, StringConstraints(min_length=1)]


class Profile(Part):
    """Queue, node label, GPUs, memory and the like, under a name that tasks refer to by `profile=`."""

    queue: _Text | None = None
    """As in `Placement`; so are the next six."""
    node_label: _Text | None = None
    driver_label: _Text | None = None
    gpus_per_worker: NonNegativeInt = 0
    workers_per_container: PositiveInt = 1
    isolation: Isolation = "yarn"
    image: _Text | None = None
    memory: _Text | None = None
    """The memory of each executor in all, such as "8g"."""
    driver_memory: _Text | None = None
    """The memory of the driver in all."""
    environment: _Text | None = None
    """The URI of a packed environment, instead of that of the connection."""
    conf: Mapping[str, SparkText] = {}
    """Spark configuration."""


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
        memory=_choose("memory", job.memory, profile.memory, memory),
        driver_memory=_choose("driver_memory", job.driver_memory, profile.driver_memory, driver_memory),
        environment=profile.environment or job.environment,
        conf={**profile.conf, **(job.conf or {})},
    )


def _choose(option: str, memory: Memory, total: str | None, default: Memory) -> Memory:
    return split(total, default, f"profile: {option}") if total and memory == default else memory
