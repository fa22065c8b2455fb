"""A plan held against the cluster it would run on, before it does: what fits, and how to mend what does not.

Pure functions. That something fits is said of the whole cluster, empty; whether it is free at present is
for the capacity sensor to wait for.
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
    """One thing a stage needs, and what there is of it. `problem` says how to mend it, and is empty when it fits."""

    stage: str
    subject: str
    needed: str
    found: str
    problem: str = ""


def as_text(findings: Iterable[Finding]) -> str:
    """A table of all findings, and below it each problem in a sentence."""
    listed = list(findings)
    rows = [[f.stage, f.subject, f.needed, f.found, "DOES NOT FIT" if f.problem else "fits"] for f in listed]
    parts = [table(["stage", "what", "needs", "there is", ""], rows)]
    parts += [finding.problem for finding in listed if finding.problem]
    return "\n\n".join(parts)


def check_plan(plan: Plan, snapshot: ClusterSnapshot) -> list[Finding]:
    """Everything that YARN would refuse, or keep waiting for ever."""
    queue = snapshot.queue(plan.queue)
    if queue is None:
        leaves = ", ".join(sorted(q.name for q in snapshot.queues if q.leaf))
        problem = f"There is no queue {plan.queue!r}; there are {leaves}. {_another_queue(plan)}"
        return [_finding(plan, "queue", plan.queue, "no such queue", problem)]
    found = [_queue(plan, snapshot, queue), *_labels(plan, snapshot, queue)]
    if any(finding.problem for finding in found):
        return found
    try:
        driver, executor = capacity.containers(plan, snapshot, queue)
    except TrainyardError as error:
        return [*found, Finding(plan.task_key.task, "container", "see below", f"queue {queue.name}", str(error))]
    asked = capacity.resource_request(plan, queue, driver, executor)
    sizes = [("driver", driver, plan.placement.driver_label), (_kind(plan), executor, plan.placement.node_label)]
    for name, size, label in sizes:
        most = snapshot.limits(queue, queue.partition(label)).largest
        found.append(_finding(plan, name, f"{size.granted} MB", f"at most {most} MB", ""))
    return [*found, _room(plan, snapshot, asked), _share(plan, queue, asked)]


def fit_to_cluster(plan: Plan, snapshot: ClusterSnapshot) -> Plan:
    """`plan` as it is submitted to this cluster. Raises TrainyardError with every problem there is."""
    if problems := [finding.problem for finding in check_plan(plan, snapshot) if finding.problem]:
        raise TrainyardError("\n".join(problems))
    queue = snapshot.queue(plan.queue)
    assert queue is not None
    driver, executor = capacity.containers(plan, snapshot, queue)
    return replace(plan, conf={**plan.conf, **sizing.driver_settings(driver), **sizing.executor_settings(executor)})


def _queue(plan: Plan, snapshot: ClusterSnapshot, queue: Queue) -> Finding:
    there = f"{queue.path}, {'running' if queue.running else 'stopped'}"
    problem = ""
    if not queue.leaf:
        below = ", ".join(q.name for q in snapshot.queues if q.leaf and q.path.startswith(f"{queue.path}."))
        problem = f"Queue {queue.path} takes no applications, the queues below it do: {below}. {_another_queue(plan)}"
    elif not queue.running:
        problem = f"Queue {queue.path} is stopped. Have it started (its `state`), or: {_another_queue(plan)}"
    elif not queue.admits(snapshot.user):
        problem = (
            f"User {snapshot.user!r} may not submit to queue {queue.path}. Have the user added to "
            f"yarn.scheduler.capacity.{queue.path}.acl_submit_applications, or: {_another_queue(plan)}"
        )
        there = f"{queue.path}, closed to {snapshot.user}"
    return _finding(plan, "queue", plan.queue, there, problem)


def _labels(plan: Plan, snapshot: ClusterSnapshot, queue: Queue) -> Iterator[Finding]:
    chosen = plan.placement
    for option, label in (("node_label", chosen.node_label), ("driver_label", chosen.driver_label)):
        partition = queue.partition(label)
        nodes = snapshot.nodes_of(partition)
        problem = ""
        if not label and nodes:
            continue
        if label and label not in snapshot.partitions:
            known = ", ".join(sorted(snapshot.partitions)) or "none"
            problem = f"The cluster has no node label {label!r}, but: {known}. Write one of them as {option}=."
        elif not queue.may_use(partition):
            others = ", ".join(q.name for q in snapshot.queues if q.leaf and q.may_use(partition)) or "none"
            problem = (
                f"Queue {queue.path} may not use label {label!r}; of the queues, these may: {others}. "
                f"{_another_queue(plan)} Or have the label added to "
                f"yarn.scheduler.capacity.{queue.path}.accessible-node-labels."
            )
        elif not nodes:
            problem = f"No node {_of(partition)} runs at present, for {option}={label!r}."
        count = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
        yield _finding(plan, option, label or "none", count, problem)


def _room(plan: Plan, snapshot: ClusterSnapshot, asked: ResourceRequest) -> Finding:
    nodes = snapshot.nodes_of(asked.partition)
    room = capacity.executors(asked, nodes)
    needed = f"{asked.count} x {_shown(asked.executor)}"
    problem = ""
    if asked.executor.gpus and not any(node.total.gpus for node in nodes):
        problem = (
            f"No node {_of(asked.partition)} offers yarn.io/gpu. Choose another node_label=, or isolation='labels' or "
            "'whole_node' where YARN does not count GPUs."
        )
    elif room < asked.count:
        problem = (
            f"{len(nodes)} node{'s' * (len(nodes) != 1)} {_of(asked.partition)} hold {room} of the {asked.count} "
            f"containers that must run at once, each of {_shown(asked.executor)}. {_fewer(plan, room)}"
        )
    driver_nodes = snapshot.nodes_of(asked.driver_partition)
    if not problem and not any(asked.driver.within(node.total) for node in driver_nodes):
        problem = f"No node {_of(asked.driver_partition)} holds the driver's {_shown(asked.driver)}."
    return _finding(plan, "room", needed, f"room for {room}", problem)


def _share(plan: Plan, queue: Queue, asked: ResourceRequest) -> Finding:
    most = queue.most.get(asked.partition, Resources())
    problem = ""
    if not asked.total.within(most):
        problem = (
            f"Queue {queue.path} may use at most {_shown(most)} {_of(asked.partition)}, and this needs "
            f"{_shown(asked.total)}. Have yarn.scheduler.capacity.{queue.path}.maximum-capacity raised (of the label, "
            f"if it has one), or: {_another_queue(plan)}"
        )
    return _finding(plan, "queue's limit", _shown(asked.total), _shown(most), problem)


def _kind(plan: Plan) -> str:
    return "container of ranks" if plan.workers else "executor"


def _fewer(plan: Plan, room: int) -> str:
    if not plan.workers or not room:
        return "Ask for less memory or fewer GPUs in a container."
    return f"Write workers={room * plan.placement.workers_per_container}, or ask for less in each container."


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
