"""Check every stage of a DAG before it runs: against the cluster, the storage, and the Python on the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from trainyard import storage
from trainyard.checks import probe
from trainyard.diagnosis.diagnose import diagnose
from trainyard.diagnosis.executors import GPU_FIX
from trainyard.errors import TrainyardError, summarize
from trainyard.jobs.dry_run import TaskPlan
from trainyard.jobs.validation import is_pending
from trainyard.planning import sizing
from trainyard.planning.environment import NodeRuntime, node_runtime
from trainyard.planning.plan import Plan
from trainyard.planning.runtime import spark_defaults
from trainyard.planning.spark_conf import DRIVER, EXECUTOR, container_environment
from trainyard.yarn import cluster, fit
from trainyard.yarn.fit import Finding
from trainyard.yarn.resource_manager import ResourceManager
from trainyard.yarn.snapshot import OtherSchedulerError


def check_dag(stages: Sequence[TaskPlan]) -> list[Finding]:
    """Return what fits and what does not, for all stages at once. Nothing of the DAG runs.

    It writes, reads and removes a file where stages write, and looks for the files of this machine that they ship. On
    YARN, for stages without another problem, it runs containers of about a second that do so as the drivers and
    executors, import what the stages import, and count the GPUs that they are given. Stages with preflight 'off' are
    not checked against the cluster.
    """
    plans = [stage.plan for stage in stages if stage.plan]
    on_yarn = [plan for plan in plans if plan.spark.master == "yarn" and plan.preflight != "off"]
    findings = [Finding(stage.task_id, "plan", "a plan", "none", stage.problem) for stage in stages if stage.problem]
    findings += [finding for plan in plans for finding in _check_files(plan)]
    written = _check_storage(stages)
    if on_yarn:
        refused = [finding.needed for finding in written if finding.problem]
        writes = {stage.task_id: [uri for uri in _list_roots([stage]) if uri not in refused] for stage in stages}
        findings += _check_cluster(on_yarn, writes)
    return findings + written


def _check_files(plan: Plan) -> Iterator[Finding]:
    """Find the jars and files that spark-submit would not find on this machine."""
    for option, uris in (("jars", plan.jars), ("files", plan.files)):
        for uri in uris:
            if not (is_pending(uri) or _exists(uri)):
                problem = (
                    f"{plan.operator}: {option}={uri!r} does not exist on this machine, which submits the application. "
                    "Write the path of a file, or a URI that every node reads, for example "
                    f"'hdfs:///{option}/{uri.partition('#')[0].rpartition('/')[2]}'."
                )
                yield Finding(plan.task_key.task, option, uri, "missing", problem)


def _exists(uri: str) -> bool:
    """Return whether spark-submit finds a file, or one that matches a pattern. That of another storage is not read."""
    location = urlsplit(uri)
    if location.scheme not in ("", "file"):
        return True
    return bool(storage.list_files(unquote(location.path) if location.scheme else uri.partition("#")[0]))


def _check_cluster(plans: Sequence[Plan], writes: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Check plans against the cluster; an error of it is the last finding, and other checks go on.

    Args:
        plans: The plans.
        writes: The directories that each stage writes to.
    """
    try:
        fits = _check_fit(plans) + _check_tokens(plans)
        yield from fits
        failed = {finding.stage for finding in fits if finding.problem}
        fitting = [plan for plan in plans if plan.task_key.task not in failed]
        yield from _check_python(fitting)
        yield from _check_access(fitting, writes)
        yield from _check_gpus(fitting)
    except Exception as error:  # also of an answer that is not understood
        why = str(error) if isinstance(error, TrainyardError) else summarize(error)
        problem = f"the cluster could not be checked, or not completely: {why}"
        yield Finding(plans[0].task_key.task, "cluster", "an answer", "none", problem)


def _check_fit(plans: Sequence[Plan]) -> list[Finding]:
    """Check plans against the nodes and queues, of which only a CapacityScheduler gives a description."""
    try:
        snapshot = cluster.take_snapshot()
    except OtherSchedulerError as error:
        unchecked = "queue, node labels, memory and GPUs were not checked"
        return [
            Finding(
                plan.task_key.task, "cluster", f"queue {plan.queue}", "not checked",
                warning=f"{plan.operator}: {unchecked}: {error}",
            )
            for plan in plans
        ]  # fmt: skip
    return [finding for plan in plans for finding in fit.check_plan(plan, snapshot)]


def _check_tokens(plans: Sequence[Plan]) -> list[Finding]:
    """Return a finding for each storage whose Kerberos token containers could not use."""
    problems = {plan.storage: (plan.task_key.task, cluster.unusable_token(plan.storage)) for plan in reversed(plans)}
    return [Finding(stage, "token", root, "unusable", why) for root, (stage, why) in problems.items() if why]


def _check_storage(stages: Sequence[TaskPlan]) -> list[Finding]:
    """Check that stages can write where they write."""
    return [_check_write(stage, uri) for uri, stage in _list_roots(stages).items()]


def _list_roots(stages: Sequence[TaskPlan]) -> dict[str, str]:
    """Return the directories that stages write to, each with its first stage; those below others are left out."""
    writers = {uri: stage.task_id for stage in reversed(stages) for uri in stage.writes if not is_pending(uri)}
    below = {u for u in writers for other in writers if u != other and u.startswith(storage.join(other, ""))}
    return {uri: stage for uri, stage in writers.items() if uri not in below}


def _check_write(stage: str, uri: str) -> Finding:
    if why := storage.write_error(uri):
        return Finding(stage, "storage", uri, "not writable", f"{uri} cannot be written: {why}")
    return Finding(stage, "storage", uri, "writable")


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
        environment = _Environment(plan.queue, plan.placement.node_label, runtime, plan.modules)
        if environment not in environments:
            environments.append(environment)
            findings.append(_probe(manager, plan, environment))
    return findings


def _probe(manager: ResourceManager, plan: Plan, environment: _Environment) -> Finding:
    stage, python, modules = plan.task_key.task, environment.runtime.python, environment.modules
    if not environment.runtime.is_checkable:
        return Finding(stage, "Python", python, "shipped with the application, not checked")
    memory, names = sizing.size(plan.memory, plan.operator, "memory").needed, ", ".join(modules)
    where = probe.describe_nodes(environment.label)
    try:
        error = probe.find_runtime_error(
            manager, environment.queue, environment.label, memory, environment.runtime, modules
        )
        problem = error and f"{plan.operator}: it cannot run with {python} {where}: {error}. {probe.RUNTIME_FIX}"
    except probe.NoRoomError:
        return Finding(stage, "Python", names, "not checked, the nodes are busy")
    except TrainyardError as error:
        problem = f"{plan.operator}: no container could check {python} {where}: {_explain(plan, error)}"
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
        for role, label in ((DRIVER, plan.placement.driver_label), (EXECUTOR, plan.placement.node_label)):
            uris = cluster.list_accessible(writes.get(plan.task_key.task, ()))
            access = _Access(label, runtime, container_environment(conf, role), uris)
            if uris and runtime.is_checkable and access not in checked:
                checked.append(access)
                findings.append(_probe_access(manager, plan, access))
    return findings


def _probe_access(manager: ResourceManager, plan: Plan, access: _Access) -> Finding:
    stage, needed = plan.task_key.task, ", ".join(access.uris)
    where = probe.describe_nodes(access.label)
    try:
        error = probe.find_storage_error(
            manager, plan.queue, access.label, access.runtime, access.environment, access.uris
        )
        problem = error and f"{plan.operator}: containers {where} cannot access {error}. {probe.ACCESS_FIX}"
    except probe.NoRoomError:
        return Finding(stage, "storage", needed, "not checked in containers, the nodes are busy")
    except TrainyardError as error:
        problem = f"{plan.operator}: no container {where} could access {needed}: {_explain(plan, error)}"
    return Finding(stage, "storage", needed, f"not accessible {where}" if problem else f"accessible {where}", problem)


def _check_gpus(plans: Sequence[Plan]) -> list[Finding]:
    """Check that a container of each size and label finds the GPUs that YARN gives to it."""
    manager, findings = cluster.resource_manager(), dict[tuple[str | None, int], Finding]()
    for plan in plans:
        gpus, label = plan.placement.gpus_per_container, plan.placement.node_label
        if gpus and (label, gpus) not in findings:
            findings[label, gpus] = _probe_gpus(manager, plan)
    return list(findings.values())


def _probe_gpus(manager: ResourceManager, plan: Plan) -> Finding:
    stage, gpus, label = plan.task_key.task, plan.placement.gpus_per_container, plan.placement.node_label
    memory = sizing.size(plan.memory, plan.operator, "memory").needed
    try:
        conf = {**spark_defaults(), **plan.conf}
        error = probe.find_gpu_error(manager, plan.queue, label, memory, gpus, conf)
        problem = error and f"{plan.operator}: {error}. {GPU_FIX}"
    except probe.NoRoomError:
        return Finding(stage, "GPUs", str(gpus), "not checked, the nodes are busy")
    except TrainyardError as error:
        problem = f"{plan.operator}: no container could count its GPUs: {_explain(plan, error)}"
    return Finding(stage, "GPUs", str(gpus), "missing" if problem else "found by nvidia-smi", problem)


def _explain(plan: Plan, refusal: TrainyardError) -> str:
    """Return the cause and fix of YARN's refusal, or its text where they are not recognized."""
    diagnosis = diagnose(plan, str(refusal))
    return diagnosis.sentence if diagnosis else str(refusal)
