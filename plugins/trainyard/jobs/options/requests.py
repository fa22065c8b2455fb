"""Collect what a task requests: the options of its operator, the settings of its connection, and its profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainyard.clusters.registry import find_cluster
from trainyard.errors import TrainyardError
from trainyard.hooks.spark import spark_connection
from trainyard.hooks.trainyard import Settings, TrainyardHook
from trainyard.jobs.options.common import CommonOptions, as_memory, check_growth
from trainyard.jobs.options.validation import is_pending
from trainyard.planning import placement as placements
from trainyard.planning.job import Job
from trainyard.planning.profile import Profile, apply_profile
from trainyard.schemas.specs.task_key import TaskKey

if TYPE_CHECKING:
    from trainyard.jobs.operator import JobOperator


def build_job(
    operator: JobOperator, options: CommonOptions, settings: Settings, task_key: TaskKey, spec: Mapping[str, Any]
) -> Job:
    """Return what an operator requests.

    Args:
        operator: The operator.
        options: Its options, validated.
        settings: The settings of its connection.
        task_key: The task.
        spec: The fields of the job spec, as JSON; some may still be templates.

    Raises:
        TrainyardError: There is no such profile, or a size is not valid.
    """
    needs, title = operator.REQUIREMENTS, operator.title
    job = Job(
        operator=title, task_key=task_key, storage=settings.storage, spec=spec, modules=operator.modules(spec),
        memory=as_memory(options.memory, needs.memory, f"{title}: memory"),
        driver_memory=as_memory(options.driver_memory, needs.driver_memory, f"{title}: driver_memory"),
        grow_memory_to=options.grow_memory_to, placement=options.placement,
        preflight=options.preflight or settings.preflight, jars=options.jars, packages=options.packages,
        files=options.files, env_vars=options.env_vars or {}, conf=options.conf or {},
        environment=settings.environment, daemon=needs.daemon, **operator.request_fields(options, spec),
    )  # fmt: skip
    profile = _find_profile(operator, options.profile, settings)
    if profile is None:
        return job
    where = f"{title}: profile={options.profile!r} of connection {operator.conn_id!r}"
    try:
        job = apply_profile(profile, job, needs.memory, needs.driver_memory)
    except TrainyardError as error:
        raise type(error)(f"{where}: {error}") from None
    placements.check(job.placement, where)
    check_growth(job.memory, job.grow_memory_to, where)
    return job


def choose_pool(pool: str, profile: Any, conn_id: Any) -> str:
    """Return the Airflow pool of a task, which the scheduler has to know: the connection is read while it is parsed.

    Args:
        pool: The pool of the task's option.
        profile: The profile of the task. The pool of one that is a template stays unknown.
        conn_id: The connection with the profiles. One that is not valid is reported when the task runs.
    """
    are_known = all(isinstance(name, str) and not is_pending(name) for name in (profile, conn_id))
    if not are_known or pool != BaseOperator.pool:
        return pool
    try:
        found = TrainyardHook(conn_id).read_profiles().get(profile)
    except TrainyardError:
        return pool
    return found.pool or pool if found else pool


def _find_profile(operator: JobOperator, name: str | None, settings: Settings) -> Profile | None:
    """Return the profile of a name; None if there is no name, or on a local master without such a profile."""
    if name is None or name in settings.profiles:
        return settings.profiles[name] if name else None
    if find_cluster(spark_connection(operator.spark_conn_id)).slots is not None:
        return None
    known, where = ", ".join(settings.profiles) or "none", f"the extra of connection {operator.conn_id!r}"
    raise TrainyardError(
        f"{operator.title}: profile={name!r} is not in {where}, which has {known}; "
        f'add it, for example {{"profiles": {{"{name}": {{"node_label": "gpu", "gpus_per_worker": 1}}}}}}.'
    )
