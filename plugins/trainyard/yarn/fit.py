"""Check a plan against the cluster: what fits, and how to fix what does not. Pure functions.

What YARN refuses is a problem. What YARN accepts, and may never start on the nodes and queues of this moment, is a
warning: nodes may join, and placement rules may choose or create a queue. The check is against the empty cluster; the
capacity sensor waits for resources to become free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainyard.errors import TrainyardError
from trainyard.planning import sizing
from trainyard.planning.finding import Finding
from trainyard.planning.plan import Plan
from trainyard.text import Log
from trainyard.yarn import capacity
from trainyard.yarn.capacity import ResourceRequest
from trainyard.yarn.snapshot import ClusterSnapshot, Queue

PLACED_QUEUES = ("default", "root.default")
"""The queue that placement rules replace (CSMappingPlacementRule and UserGroupMappingPlacementRule)."""
_WAITS = "YARN accepts the application, which waits for more."


def check_plan(plan: Plan, snapshot: ClusterSnapshot) -> list[Finding]:
    """Return findings about everything that YARN would refuse, or keep waiting; none with preflight 'off'."""
    if plan.job.preflight == "off":
        return []
    findings = list(_check(plan, snapshot))
    return [finding.as_warning() for finding in findings] if plan.job.preflight == "warn" else findings


def fit_to_cluster(plan: Plan, snapshot: ClusterSnapshot | None, log: Log) -> Plan:
    """Return the plan with the sizes of its containers, after a check.

    Args:
        plan: The plan.
        snapshot: The cluster, None for one that cannot be checked.
        log: Gets each warning.

    Raises:
        TrainyardError: The plan does not fit; the message has all problems.
    """
    findings = check_plan(plan, snapshot) if snapshot else []
    if problems := [finding.problem for finding in findings if finding.problem]:
        raise TrainyardError("\n".join(problems))
    for finding in findings:
        if finding.warning:
            log(f"Warning: {finding.warning}")
    driver = sizing.driver_size(plan.job.driver_memory, plan.job.operator)
    executor = sizing.size(plan.job.memory, plan.job.operator, "memory")
    if snapshot and plan.job.placement.isolation == "whole_node":
        driver, executor = capacity.containers(plan, snapshot, snapshot.queue_of(plan.queue))
    return replace(plan, conf={**plan.conf, **sizing.driver_settings(driver), **sizing.executor_settings(executor)})


def _check(plan: Plan, snapshot: ClusterSnapshot) -> Iterator[Finding]:
    queue = snapshot.queue_of(plan.queue)
    of_queue = [_queue(plan, snapshot, queue), *_labels(plan, snapshot, queue)]
    if plan.queue in PLACED_QUEUES or snapshot.replaces_queues:
        of_queue = [_placed(finding, plan.queue) for finding in of_queue]
    yield from of_queue
    if any(finding.problem for finding in of_queue):
        return
    try:
        driver, executor = capacity.containers(plan, snapshot, queue)
    except TrainyardError as error:
        yield Finding(plan.job.task_key.task, "container", "see below", f"queue {queue.name}", str(error))
        return
    largest = snapshot.limits(queue).largest
    for name, size in (("driver", driver), (_kind(plan), executor)):
        yield _finding(plan, name, f"{size.granted} MB", f"at most {largest} MB")
    request = capacity.resource_request(plan, queue, driver, executor)
    yield _room(plan, snapshot, queue, request)
    yield _driver_room(plan, snapshot, request)
    yield _queue_limit(plan, queue, request)


def _placed(finding: Finding, queue: str) -> Finding:
    if not finding.problem:
        return finding
    warning = f"{finding.problem} For the queue {queue!r} placement rules may choose another queue."
    return replace(finding, problem="", warning=warning)


def _queue(plan: Plan, snapshot: ClusterSnapshot, queue: Queue) -> Finding:
    state = f"{queue.path}, {'running' if queue.running else 'stopped'}"
    problem = warning = ""
    if snapshot.queue(plan.queue) is None:
        leaves = ", ".join(sorted(q.name for q in snapshot.queues if q.leaf))
        state = "no such queue now"
        warning = (
            f"There is no queue {plan.queue!r} now; the queues are {leaves}. YARN refuses the application unless a "
            f"placement rule chooses or creates a queue. {_another_queue(plan)}"
        )
    elif queue.creates_queues:
        warning = (
            f"Queue {queue.path} accepts no applications itself; YARN creates queues below it by placement rules. "
            f"{_another_queue(plan)}"
        )
    elif not queue.leaf:
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
    return _finding(plan, "queue", plan.queue, state, problem, warning)


def _labels(plan: Plan, snapshot: ClusterSnapshot, queue: Queue) -> Iterator[Finding]:
    placement = plan.job.placement
    for option, label in (("node_label", placement.node_label), ("driver_label", placement.driver_label)):
        partition = queue.partition(label)
        nodes = snapshot.nodes_of(partition)
        problem = warning = ""
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
            warning = f"No node {_of(partition)} is running now, for {option}={label!r}. {_WAITS}"
        yield _finding(plan, option, label or "none", _counted(len(nodes), "node"), problem, warning)


def _room(plan: Plan, snapshot: ClusterSnapshot, queue: Queue, request: ResourceRequest) -> Finding:
    nodes = snapshot.nodes_of(request.partition)
    room = capacity.count_executors(request, nodes)
    options = "gpus_per_worker= or workers_per_container=" if plan.job.workers else "gpus_per_executor="
    largest, cores = snapshot.largest_container(queue).gpus, snapshot.largest_container(queue).cores
    problem = warning = ""
    if request.executor.gpus and not largest:
        problem = (
            "No node of the cluster offers yarn.io/gpu. Choose isolation='labels' or 'whole_node' where YARN does not "
            "count GPUs."
        )
    elif request.executor.gpus > largest:
        problem = (
            f"A container requests {_counted(request.executor.gpus, 'GPU')}, and the largest that YARN grants has "
            f"{largest}. Write a smaller {options}."
        )
    elif request.executor.cores > cores:
        problem = (
            f"A container requests {_counted(request.executor.cores, 'core')}, and the largest that YARN grants has "
            f"{cores}. {_fewer_cores(plan, cores)}"
        )
    elif room < request.count:
        warning = (
            f"{_counted(len(nodes), 'node')} {_of(request.partition)} {'has' if len(nodes) == 1 else 'have'} room for "
            f"{room} of the {_counted(request.count, 'container')}, each of {request.executor}. {_fewer(plan, room)}"
        )
    return _finding(plan, "room", f"{request.count} x {request.executor}", f"room for {room}", problem, warning)


def _driver_room(plan: Plan, snapshot: ClusterSnapshot, request: ResourceRequest) -> Finding:
    nodes = snapshot.nodes_of(request.driver_partition)
    room = sum(request.driver.within(node.total, request.counts_cores) for node in nodes)
    warning = ""
    if not room:
        warning = (
            f"No node {_of(request.driver_partition)} has room for the driver's {request.driver}. {_WAITS} Write a "
            "smaller driver_memory=, or another driver_label=."
        )
    return _finding(plan, "room for the driver", str(request.driver), _counted(room, "node"), "", warning)


def _queue_limit(plan: Plan, queue: Queue, request: ResourceRequest) -> Finding:
    limit = queue.limit(request.partition)
    warning = ""
    if not request.total.within(limit, request.counts_cores):
        warning = (
            f"Queue {queue.path} may use at most {limit} {_of(request.partition)} now, and this needs "
            f"{request.total}. {_WAITS} Have yarn.scheduler.capacity.{queue.path}.maximum-capacity raised (of the "
            f"label, if it has one), or: {_another_queue(plan)}"
        )
    return _finding(plan, "queue limit", str(request.total), str(limit), "", warning)


def _kind(plan: Plan) -> str:
    return "container of workers" if plan.job.workers else "executor"


def _fewer(plan: Plan, room: int) -> str:
    if not room:
        return f"{_WAITS} Request less memory, cores or GPUs in a container, or choose another node_label=."
    if not plan.job.workers:
        return f"The stage runs in those. Write executors={room}, or request less in each container."
    workers = room * plan.job.placement.workers_per_container
    return f"All must run at once. {_WAITS} Write workers={workers}, or request less in each container."


def _fewer_cores(plan: Plan, cores: int) -> str:
    if not plan.job.workers:
        return f"Write cores_per_executor={cores}."
    if plan.job.placement.workers_per_container == 1:
        return f"Write cores_per_worker={cores}."
    return "Write a smaller cores_per_worker= or workers_per_container=."


def _another_queue(plan: Plan) -> str:
    if plan.job.placement.queue:
        return "Write another as placement=Placement(queue=...)."
    return f"Write another as placement=Placement(queue=...), or in the extra of connection {plan.spark.conn_id!r}."


def _finding(plan: Plan, subject: str, needed: str, found: str, problem: str = "", warning: str = "") -> Finding:
    problem, warning = (text and f"{plan.job.operator}: {text}" for text in (problem, warning))
    return Finding(plan.job.task_key.task, subject, needed, found, problem, warning)


def _of(partition: str) -> str:
    return f"of partition {partition!r}" if partition else "without a label"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
