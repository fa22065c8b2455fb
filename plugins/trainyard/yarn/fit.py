"""Check a plan against the cluster: what fits, and how to fix what does not. Pure functions.

The check is against the empty cluster; the capacity sensor waits for resources to become free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from trainyard.errors import TrainyardError
from trainyard.planning import sizing
from trainyard.planning.plan import Plan
from trainyard.table import table
from trainyard.yarn import capacity
from trainyard.yarn.capacity import ResourceRequest
from trainyard.yarn.snapshot import ClusterSnapshot, Queue, Resources


@dataclass(frozen=True)
class Finding:
    """One need of a stage, and what the cluster has. `problem` is how to fix it, "" if it fits."""

    stage: str
    subject: str
    needed: str
    found: str
    problem: str = ""


def as_text(findings: Iterable[Finding]) -> str:
    """Return a table of all findings, and each problem in a sentence."""
    listed = list(findings)
    rows = [[f.stage, f.subject, f.needed, f.found, "DOES NOT FIT" if f.problem else "fits"] for f in listed]
    parts = [table(["stage", "check", "needs", "available", ""], rows)]
    parts += [finding.problem for finding in listed if finding.problem]
    return "\n\n".join(parts)


def check_plan(plan: Plan, snapshot: ClusterSnapshot) -> list[Finding]:
    """Return findings about everything that YARN would refuse, or keep waiting forever."""
    queue = snapshot.queue(plan.queue)
    if queue is None:
        leaves = ", ".join(sorted(q.name for q in snapshot.queues if q.leaf))
        problem = f"There is no queue {plan.queue!r}; the queues are {leaves}. {_another_queue(plan)}"
        return [_finding(plan, "queue", plan.queue, "no such queue", problem)]
    findings = [_queue(plan, snapshot, queue), *_labels(plan, snapshot, queue)]
    if any(finding.problem for finding in findings):
        return findings
    try:
        driver, executor = capacity.containers(plan, snapshot, queue)
    except TrainyardError as error:
        return [*findings, Finding(plan.task_key.task, "container", "see below", f"queue {queue.name}", str(error))]
    request = capacity.resource_request(plan, queue, driver, executor)
    sizes = [("driver", driver, plan.placement.driver_label), (_kind(plan), executor, plan.placement.node_label)]
    for name, size, label in sizes:
        largest = snapshot.limits(queue, queue.partition(label)).largest
        findings.append(_finding(plan, name, f"{size.granted} MB", f"at most {largest} MB", ""))
    return [*findings, _room(plan, snapshot, request), _queue_limit(plan, queue, request)]


def fit_to_cluster(plan: Plan, snapshot: ClusterSnapshot) -> Plan:
    """Return the plan with container sizes as this cluster rounds them. Raises TrainyardError with all problems."""
    if problems := [finding.problem for finding in check_plan(plan, snapshot) if finding.problem]:
        raise TrainyardError("\n".join(problems))
    queue = snapshot.queue(plan.queue)
    assert queue is not None
    driver, executor = capacity.containers(plan, snapshot, queue)
    return replace(plan, conf={**plan.conf, **sizing.driver_settings(driver), **sizing.executor_settings(executor)})


def _queue(plan: Plan, snapshot: ClusterSnapshot, queue: Queue) -> Finding:
    state = f"{queue.path}, {'running' if queue.running else 'stopped'}"
    problem = ""
    if not queue.leaf:
        below = ", ".join(q.name for q in snapshot.queues if q.leaf and q.path.startswith(f"{queue.path}."))
        problem = f"Queue {queue.path} accepts no applications, the queues below it do: {below}. {_another_queue(plan)}"
    elif not queue.running:
        problem = f"Queue {queue.path} is stopped. Have its `state` set to RUNNING, or: {_another_queue(plan)}"
    elif not queue.admits(snapshot.user):
        problem = (
            f"User {snapshot.user!r} may not submit to queue {queue.path}. Have the user added to "
            f"yarn.scheduler.capacity.{queue.path}.acl_submit_applications, or: {_another_queue(plan)}"
        )
        state = f"{queue.path}, closed to {snapshot.user}"
    return _finding(plan, "queue", plan.queue, state, problem)


def _labels(plan: Plan, snapshot: ClusterSnapshot, queue: Queue) -> Iterator[Finding]:
    placement = plan.placement
    for option, label in (("node_label", placement.node_label), ("driver_label", placement.driver_label)):
        partition = queue.partition(label)
        nodes = snapshot.nodes_of(partition)
        problem = ""
        if not label and nodes:
            continue
        if label and label not in snapshot.partitions:
            known = ", ".join(sorted(snapshot.partitions)) or "none"
            problem = f"The cluster has no node label {label!r}; it has {known}. Write one of them as {option}=."
        elif not queue.may_use(partition):
            others = ", ".join(q.name for q in snapshot.queues if q.leaf and q.may_use(partition)) or "none"
            problem = (
                f"Queue {queue.path} may not use label {label!r}; queues that may: {others}. "
                f"{_another_queue(plan)} Or have the label added to "
                f"yarn.scheduler.capacity.{queue.path}.accessible-node-labels."
            )
        elif not nodes:
            problem = f"No node {_of(partition)} is running, for {option}={label!r}."
        count = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
        yield _finding(plan, option, label or "none", count, problem)


def _room(plan: Plan, snapshot: ClusterSnapshot, request: ResourceRequest) -> Finding:
    nodes = snapshot.nodes_of(request.partition)
    room = capacity.count_executors(request, nodes)
    needed = f"{request.count} x {_shown(request.executor)}"
    problem = ""
    if request.executor.gpus and not any(node.total.gpus for node in nodes):
        problem = (
            f"No node {_of(request.partition)} offers yarn.io/gpu. Choose another node_label=, or isolation='labels' "
            "or 'whole_node' where YARN does not count GPUs."
        )
    elif room < request.count:
        problem = (
            f"{len(nodes)} node{'s' * (len(nodes) != 1)} {_of(request.partition)} have room for {room} of the "
            f"{request.count} containers that must run at once, each of {_shown(request.executor)}. "
            f"{_fewer(plan, room)}"
        )
    driver_nodes = snapshot.nodes_of(request.driver_partition)
    if not problem and not any(request.driver.within(node.total) for node in driver_nodes):
        problem = f"No node {_of(request.driver_partition)} has room for the driver's {_shown(request.driver)}."
    return _finding(plan, "room", needed, f"room for {room}", problem)


def _queue_limit(plan: Plan, queue: Queue, request: ResourceRequest) -> Finding:
    limit = queue.max.get(request.partition, Resources())
    problem = ""
    if not request.total.within(limit):
        problem = (
            f"Queue {queue.path} may use at most {_shown(limit)} {_of(request.partition)}, and this needs "
            f"{_shown(request.total)}. Have yarn.scheduler.capacity.{queue.path}.maximum-capacity raised (of the "
            f"label, if it has one), or: {_another_queue(plan)}"
        )
    return _finding(plan, "queue limit", _shown(request.total), _shown(limit), problem)


def _kind(plan: Plan) -> str:
    return "container of workers" if plan.workers else "executor"


def _fewer(plan: Plan, room: int) -> str:
    if not plan.workers or not room:
        return "Request less memory or fewer GPUs in a container."
    return f"Write workers={room * plan.placement.workers_per_container}, or request less in each container."


def _another_queue(plan: Plan) -> str:
    if plan.placement.queue:
        return "Write another as placement=Placement(queue=...)."
    return f"Write another as placement=Placement(queue=...), or in the extra of connection {plan.spark.conn_id!r}."


def _finding(plan: Plan, subject: str, needed: str, found: str, problem: str) -> Finding:
    return Finding(plan.task_key.task, subject, needed, found, problem and f"{plan.operator}: {problem}")


def _of(partition: str) -> str:
    return f"of partition {partition!r}" if partition else "without a label"


def _shown(resources: Resources) -> str:
    parts = [f"{resources.memory} MB", f"{resources.cores} core{'s' * (resources.cores != 1)}"]
    if resources.gpus:
        parts.append(f"{resources.gpus} GPU{'s' * (resources.gpus != 1)}")
    return ", ".join(parts)
