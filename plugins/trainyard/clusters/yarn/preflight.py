"""Check the plans of a DAG against YARN: queues, nodes, tokens, Python, the storage and GPUs in containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainyard.clusters.yarn import probe
from trainyard.diagnosis.diagnose import diagnose
from trainyard.diagnosis.executors import GPU_FIX
from trainyard.errors import TrainyardError, summarize
from trainyard.planning import sizing
from trainyard.planning.finding import Finding
from trainyard.planning.plan import Plan
from trainyard.planning.runtime import spark_defaults
from trainyard.planning.shipping.environment import NodeRuntime, node_runtime
from trainyard.yarn import cluster, fit
from trainyard.yarn.resource_manager import ResourceManager
from trainyard.yarn.settings import DRIVER, EXECUTOR, container_environment
from trainyard.yarn.snapshot import OtherSchedulerError


def check_plans(plans: Sequence[Plan], writes: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Check plans against the cluster; an error of it is the last finding, and other checks go on.

    Args:
        plans: The plans.
        writes: The directories that each stage writes to.
    """
    try:
        fits = _check_fit(plans) + _check_tokens(plans)
        yield from fits
        failed = {finding.stage for finding in fits if finding.problem}
        fitting = [plan for plan in plans if plan.job.task_key.task not in failed]
        yield from _check_python(fitting)
        yield from _check_access(fitting, writes)
        yield from _check_gpus(fitting)
    except Exception as error:  # also of an answer that is not understood
        why = str(error) if isinstance(error, TrainyardError) else summarize(error)
        problem = f"the cluster could not be checked, or not completely: {why}"
        yield Finding(plans[0].job.task_key.task, "cluster", "an answer", "none", problem)


def _check_fit(plans: Sequence[Plan]) -> list[Finding]:
    """Check plans against the nodes and queues, of which only a CapacityScheduler gives a description."""
    try:
        snapshot = cluster.take_snapshot()
    except OtherSchedulerError as error:
        unchecked = "queue, node labels, memory and GPUs were not checked"
        return [
            Finding(
                plan.job.task_key.task, "cluster", f"queue {plan.queue}", "not checked",
                warning=f"{plan.job.operator}: {unchecked}: {error}",
            )
            for plan in plans
        ]  # fmt: skip
    return [finding for plan in plans for finding in fit.check_plan(plan, snapshot)]


def _check_tokens(plans: Sequence[Plan]) -> list[Finding]:
    """Return a finding for each storage whose Kerberos token containers could not use."""
    problems = {
        plan.job.storage: (plan.job.task_key.task, cluster.unusable_token(plan.job.storage)) for plan in reversed(plans)
    }
    return [Finding(stage, "token", root, "unusable", why) for root, (stage, why) in problems.items() if why]


@dataclass(frozen=True)
class _Environment:
    """What a probe checks; one probe covers all stages with the same environment."""

    queue: str
    label: str | None
    runtime: NodeRuntime
    modules: tuple[str, ...]


def _check_python(plans: Sequence[Plan]) -> list[Finding]:
    manager, findings = cluster.resource_manager(), list[Finding]()
    environments: list[_Environment] = []
    for plan in plans:
        runtime = node_runtime(plan.conf, plan.env)
        environment = _Environment(plan.queue, plan.job.placement.node_label, runtime, plan.job.modules)
        if environment not in environments:
            environments.append(environment)
            findings.append(_probe(manager, plan, environment))
    return findings


def _probe(manager: ResourceManager, plan: Plan, environment: _Environment) -> Finding:
    stage, python, modules = plan.job.task_key.task, environment.runtime.python, environment.modules
    if not environment.runtime.is_checkable:
        return Finding(stage, "Python", python, "shipped with the application, not checked")
    memory, names = sizing.size(plan.job.memory, plan.job.operator, "memory").needed, ", ".join(modules)
    where = probe.describe_nodes(environment.label)
    try:
        error = probe.find_runtime_error(
            manager, environment.queue, environment.label, memory, environment.runtime, modules
        )
        problem = error and f"{plan.job.operator}: it cannot run with {python} {where}: {error}. {probe.RUNTIME_FIX}"
    except probe.NoRoomError:
        return Finding(stage, "Python", names, "not checked, the nodes are busy")
    except TrainyardError as error:
        problem = f"{plan.job.operator}: no container could check {python} {where}: {_explain(plan, error)}"
    return Finding(stage, "Python", names, "missing" if problem else "installed", problem)


@dataclass(frozen=True)
class _Access:
    """How containers access the storage; one probe covers all stages whose containers do so in the same way."""

    label: str | None
    runtime: NodeRuntime
    environment: Mapping[str, str]
    uris: Sequence[str]


def _check_access(plans: Sequence[Plan], writes: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Check that drivers and executors can write and read files where their stages write."""
    manager, findings, checked = cluster.resource_manager(), list[Finding](), list[_Access]()
    for plan in plans:
        conf, runtime = {**spark_defaults(), **plan.conf}, node_runtime(plan.conf, plan.env)
        for role, label in ((DRIVER, plan.job.placement.driver_label), (EXECUTOR, plan.job.placement.node_label)):
            uris = cluster.list_accessible(writes.get(plan.job.task_key.task, ()))
            access = _Access(label, runtime, container_environment(conf, role), uris)
            if uris and runtime.is_checkable and access not in checked:
                checked.append(access)
                findings.append(_probe_access(manager, plan, access))
    return findings


def _probe_access(manager: ResourceManager, plan: Plan, access: _Access) -> Finding:
    stage, needed = plan.job.task_key.task, ", ".join(access.uris)
    where = probe.describe_nodes(access.label)
    try:
        error = probe.find_storage_error(
            manager, plan.queue, access.label, access.runtime, access.environment, access.uris
        )
        problem = error and f"{plan.job.operator}: containers {where} cannot access {error}. {probe.ACCESS_FIX}"
    except probe.NoRoomError:
        return Finding(stage, "storage", needed, "not checked in containers, the nodes are busy")
    except TrainyardError as error:
        problem = f"{plan.job.operator}: no container {where} could access {needed}: {_explain(plan, error)}"
    return Finding(stage, "storage", needed, f"not accessible {where}" if problem else f"accessible {where}", problem)


def _check_gpus(plans: Sequence[Plan]) -> list[Finding]:
    """Check that a container of each size and label finds the GPUs that YARN gives to it."""
    manager, findings = cluster.resource_manager(), dict[tuple[str | None, int], Finding]()
    for plan in plans:
        gpus, label = plan.job.gpus_per_container, plan.job.placement.node_label
        if gpus and (label, gpus) not in findings:
            findings[label, gpus] = _probe_gpus(manager, plan)
    return list(findings.values())


def _probe_gpus(manager: ResourceManager, plan: Plan) -> Finding:
    stage, gpus, label = plan.job.task_key.task, plan.job.gpus_per_container, plan.job.placement.node_label
    memory = sizing.size(plan.job.memory, plan.job.operator, "memory").needed
    try:
        conf = {**spark_defaults(), **plan.conf}
        error = probe.find_gpu_error(manager, plan.queue, label, memory, gpus, conf)
        problem = error and f"{plan.job.operator}: {error}. {GPU_FIX}"
    except probe.NoRoomError:
        return Finding(stage, "GPUs", str(gpus), "not checked, the nodes are busy")
    except TrainyardError as error:
        problem = f"{plan.job.operator}: no container could count its GPUs: {_explain(plan, error)}"
    return Finding(stage, "GPUs", str(gpus), "missing" if problem else "found by nvidia-smi", problem)


def _explain(plan: Plan, refusal: TrainyardError) -> str:
    """Return the cause and fix of YARN's refusal, or its text where they are not recognized."""
    diagnosis = diagnose(plan, str(refusal))
    return diagnosis.sentence if diagnosis else str(refusal)
