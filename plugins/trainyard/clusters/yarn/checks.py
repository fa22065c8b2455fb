"""Check an installation with YARN: the ResourceManager, clock, tokens, queues, nodes and what is installed there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

from trainyard.clusters.base import FailedCheckError, NamedCheck, Needs
from trainyard.clusters.yarn import probe
from trainyard.diagnosis.executors import GPU_FIX
from trainyard.errors import TrainyardError, summarize
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.planning import sizing
from trainyard.planning.job import SparkConnection
from trainyard.planning.runtime import spark_defaults, spark_environment
from trainyard.planning.shipping.environment import NodeRuntime, node_runtime, packed_settings
from trainyard.yarn import cluster
from trainyard.yarn.resource_manager import ResourceManager
from trainyard.yarn.settings import CONTAINER_ENVIRONMENTS, container_environment, containers_conf
from trainyard.yarn.snapshot import DEFAULT_PARTITION, ClusterSnapshot, OtherSchedulerError, Queue

MAX_SKEW_SECONDS = 5.0


def list_checks(spark: SparkConnection, conn_id: str, of_stage: Needs, of_training: Needs) -> Iterator[NamedCheck]:
    """Yield the checks of a cluster with YARN.

    Args:
        spark: The Spark connection.
        conn_id: The connection of type `trainyard`, with the storage.
        of_stage: What a Spark stage needs on the nodes.
        of_training: What a training needs there.
    """
    try:
        manager = cluster.resource_manager()
        snapshot, other_scheduler = _take_snapshot()
    except Exception as error:
        fix = str(error) if isinstance(error, TrainyardError) else summarize(error)
        yield "ResourceManager", partial(_fail, "not usable", fix)
        return
    described = f"{', '.join(manager.urls)}, as user {manager.user}"
    yield "ResourceManager", lambda: described
    yield "clock", partial(_check_clock, manager)
    yield "tokens", partial(_check_tokens, conn_id)
    if snapshot:
        queue = snapshot.queue(spark.queue or "default")
        yield "queue", partial(_check_queue, spark, snapshot, queue)
        for partition in (DEFAULT_PARTITION, *sorted(snapshot.partitions)):
            if partition or snapshot.nodes_of(partition):
                needs = of_training if partition else of_stage
                yield from _list_partition_checks(manager, snapshot, queue, partition, needs, conn_id)
    else:
        yield "queues and nodes", lambda: f"not checked: {other_scheduler}"


def _fail(result: str, fix: str) -> str:
    raise FailedCheckError(result, fix)


def _take_snapshot() -> tuple[ClusterSnapshot | None, str]:
    """Return a snapshot of the cluster, or None and why its scheduler does not allow one."""
    try:
        return cluster.take_snapshot(), ""
    except OtherSchedulerError as error:
        return None, str(error)


def _check_tokens(conn_id: str) -> str:
    if why := cluster.unusable_token(TrainyardHook(conn_id).get_conn().storage):
        raise TrainyardError(why)
    return "containers can use theirs, or need none"


def _check_clock(manager: ResourceManager) -> str:
    """Compare the clock of the cluster with this machine's; the difference must be below `MAX_SKEW_SECONDS`."""
    ahead = manager.clock() - time.time()
    if abs(ahead) > MAX_SKEW_SECONDS:
        raise TrainyardError(
            f"the ResourceManager's clock is {ahead:+.0f} s from this machine's; synchronize both with NTP: reports "
            "compare their times, and Kerberos allows five minutes."
        )
    return "as the ResourceManager's"


def _check_queue(spark: SparkConnection, snapshot: ClusterSnapshot, queue: Queue | None) -> str:
    usable = ", ".join(q.name for q in snapshot.queues if q.leaf and q.running and q.admits(snapshot.user))
    if queue is None or not queue.leaf or not queue.running or not queue.admits(snapshot.user):
        raise TrainyardError(
            f"queue {spark.queue or 'default'!r} accepts no applications of {snapshot.user!r}; these do: "
            f"{usable or 'none'}. Write one of them as queue in the extra of connection {spark.conn_id!r}."
        )
    return f"{queue.path}, running; {snapshot.user} may also use {usable}"


def _list_partition_checks(
    manager: ResourceManager,
    snapshot: ClusterSnapshot,
    preferred: Queue | None,
    partition: str,
    needs: Needs,
    conn_id: str,
) -> Iterator[NamedCheck]:
    subject, nodes = f"label {partition}" if partition else "nodes without label", snapshot.nodes_of(partition)
    gpus, memory = sum(node.total.gpus for node in nodes), sum(node.total.memory for node in nodes)
    summary = f"{len(nodes)} nodes, {memory} MB, {gpus} GPUs"
    usable = [q for q in snapshot.queues if q.leaf and q.running and q.admits(snapshot.user) and q.may_use(partition)]
    queue = preferred if preferred in usable else next(iter(usable), None)
    if not nodes or queue is None:
        problem = "none of its nodes runs" if not nodes else f"no queue that {snapshot.user!r} may submit to may use it"
        fix = f"{problem}; see `yarn cluster --list-node-labels` and accessible-node-labels."
        yield subject, partial(_fail, summary, fix)
        return
    described = f"{summary}, by queue {queue.name}"
    yield subject, lambda: described
    name = snapshot.submission_name(queue)
    runtime = partial(_check_runtime, manager, name, partition, needs, conn_id)
    yield f"Java, Python of {partition or 'no label'}", runtime
    yield f"storage of {partition or 'no label'}", partial(_check_access, manager, name, partition, conn_id)
    if gpus:
        yield f"GPU of {partition or 'no label'}", partial(_check_gpu, manager, name, partition)


def _check_access(manager: ResourceManager, queue: str, partition: str, conn_id: str) -> str:
    """Check that containers write and read the storage as drivers and executors do."""
    root, runtime = TrainyardHook(conn_id).get_conn().storage, _find_runtime(conn_id)
    if not runtime.is_checkable or not (uris := cluster.list_accessible([root])):
        return "not checked: containers of this check have no token, or no Python"
    defaults = spark_defaults()
    conf = {**defaults, **containers_conf(cluster.container_user(), defaults)}
    environments = [container_environment(conf, role) for role in CONTAINER_ENVIRONMENTS]
    try:
        for environment in environments[: 1 if environments[0] == environments[1] else 2]:
            if error := probe.find_storage_error(manager, queue, partition or None, runtime, environment, uris):
                raise TrainyardError(f"containers there cannot access {error}. {probe.ACCESS_FIX}")
    except probe.NoRoomError:
        return "not checked, the nodes are busy"
    return f"{root}, written and read in a container"


def _find_runtime(conn_id: str) -> NodeRuntime:
    environment = TrainyardHook(conn_id).get_conn().environment
    conf = packed_settings(environment, {}, "") if environment else {}
    return node_runtime(conf, spark_environment())


def _check_runtime(manager: ResourceManager, queue: str, partition: str, needs: Needs, conn_id: str) -> str:
    runtime = _find_runtime(conn_id)
    if not runtime.is_checkable:
        return f"{runtime.python}, shipped with applications, not checked"
    memory = sizing.size(needs.memory, "doctor", "memory").needed
    try:
        error = probe.find_runtime_error(manager, queue, partition or None, memory, runtime, needs.modules)
    except probe.NoRoomError:
        return "not checked, the nodes are busy"
    if error:
        raise TrainyardError(f"jobs cannot run there with {runtime.python}: {error}. {probe.RUNTIME_FIX}")
    return f"{runtime.python} imports {', '.join(needs.modules)}"


def _check_gpu(manager: ResourceManager, queue: str, partition: str) -> str:
    try:
        error = probe.find_gpu_error(manager, queue, partition or None, 512, 1, spark_defaults())
    except probe.NoRoomError:
        return "not checked, the nodes are busy"
    if error:
        raise TrainyardError(f"{error}. {GPU_FIX}")
    return "found by nvidia-smi in a container with one GPU"
