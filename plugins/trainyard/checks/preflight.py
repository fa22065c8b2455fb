"""All stages of a DAG held against what they will meet: the cluster, the storage, the Python on the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard import storage
from trainyard.checks import probe
from trainyard.errors import TrainyardError
from trainyard.jobs.dry_run import TaskPlan
from trainyard.jobs.validation import is_pending
from trainyard.planning import sizing
from trainyard.planning.plan import Plan
from trainyard.planning.runtime import node_python
from trainyard.yarn import cluster, fit
from trainyard.yarn.fit import Finding
from trainyard.yarn.resource_manager import ResourceManager


def check_dag(stages: Sequence[TaskPlan]) -> list[Finding]:
    """What fits and what does not, all stages and all problems at once; nothing of the DAG is run.

    Files are written and removed where stages write; where nothing else is wrong, containers that last a
    second import what stages import.
    """
    plans = [stage.plan for stage in stages if stage.plan]
    on_yarn = [plan for plan in plans if plan.spark.master == "yarn"]
    found = [Finding(stage.task_id, "plan", "a plan", "none", stage.problem) for stage in stages if stage.problem]
    if on_yarn:
        snapshot = cluster.take_snapshot()
        examined = [finding for plan in on_yarn for finding in fit.check_plan(plan, snapshot)]
        examined += _tokens(on_yarn)
        broken = {finding.stage for finding in examined if finding.problem}
        found += examined + _probed([plan for plan in on_yarn if plan.task_key.task not in broken])
    return found + _stored(stages)


def _tokens(plans: Sequence[Plan]) -> list[Finding]:
    """Where containers could not use their token."""
    problems = {plan.storage: (plan.task_key.task, cluster.unusable_token(plan.storage)) for plan in reversed(plans)}
    return [Finding(stage, "token", root, "unusable", why) for root, (stage, why) in problems.items() if why]


def _stored(stages: Sequence[TaskPlan]) -> list[Finding]:
    """Whether each place that is written to can be; those below another are covered by it."""
    places = {place: stage.task_id for stage in reversed(stages) for place in stage.writes if not is_pending(place)}
    roots = [p for p in places if not any(p != other and p.startswith(storage.join(other, "")) for other in places)]
    return [_writable(places[place], place) for place in roots]


def _writable(stage: str, place: str) -> Finding:
    if why := storage.write_error(place):
        return Finding(stage, "storage", place, "not writable", f"{place} cannot be written: {why}")
    return Finding(stage, "storage", place, "writable")


@dataclass(frozen=True)
class _Environment:
    """What one probe can answer for, of however many stages."""

    queue: str
    label: str | None
    python: str
    modules: tuple[str, ...]


def _probed(plans: Sequence[Plan]) -> list[Finding]:
    manager, found = cluster.resource_manager(), dict[_Environment, Finding]()
    for plan in plans:
        python = node_python(plan.conf, plan.env)
        wanted = _Environment(plan.queue, plan.placement.node_label, python, plan.modules)
        if wanted not in found:
            found[wanted] = _probe(manager, plan, wanted)
    return list(found.values())


def _probe(manager: ResourceManager, plan: Plan, wanted: _Environment) -> Finding:
    if not wanted.python.startswith("/"):
        return Finding(plan.task_key.task, "Python", wanted.python, "comes with the application, not looked at")
    memory, names = sizing.size(plan.memory, plan.operator, "memory").needed, ", ".join(wanted.modules)
    where = f"on nodes of partition {wanted.label!r}" if wanted.label else "on nodes without a label"
    try:
        missing = probe.missing(manager, wanted.queue, wanted.label, memory, wanted.python, wanted.modules)
        problem = missing and (
            f"{plan.operator}: {wanted.python} {where} cannot import what the job imports: {missing}. Install "
            "requirements.txt there, or name another Python with spark.pyspark.python."
        )
    except probe.NoRoomError:
        return Finding(plan.task_key.task, "Python", names, "not looked at, the nodes are busy")
    except TrainyardError as error:
        problem = f"{plan.operator}: no container could look for {wanted.python} {where}: {error}"
    return Finding(plan.task_key.task, "Python", names, "not there" if problem else "there", problem)
