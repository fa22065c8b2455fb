"""A pipeline on Airflow as an installation of several hosts has it.

Two schedulers, two workers of Celery, PostgreSQL and Redis; DAGs come from Git, logs go to HDFS, and every component
has a root filesystem and an AIRFLOW_HOME that are read-only. Workers and a scheduler are killed, and the DAG's code
changes while it runs.

It is a row of `make matrix`, in an environment with Airflow's providers. Redis and PostgreSQL are those of the machine
(apt-get install redis-server postgresql libkrb5-dev); their servers here are the test's own.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from stack.hadoop.cluster import Cluster
from stack.hadoop.config import USER
from tests.cluster.conftest import list_applications
from tests.cluster.jobs import wait_for
from tests.cluster.recovery.airflow import OPTIONS, Airflow, run_airflow

DAGS = Path(__file__).parent / "dags"
pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(2400)]

WORKERS = {
    f"celery worker --celery-hostname {name}@%h": f"--concurrency 2 --skip-serve-logs --pid {{folder}}/{name}.pid"
    for name in ("one", "two")
}
OTHER_VERSION = """

def linear() -> Recipe:
    raise RuntimeError("this is another version than that of the run")
"""
SECOND_SCHEDULER = "scheduler --num-runs -1"  # another name than that of the first, which means the same
READ_ONLY = """
mount --rbind /tmp /tmp
mount --bind "$0" "$0"
mount -o remount,bind,ro "$0"
mount -o remount,bind,ro /
exec "$@"
"""
"""A script whose command can write to /tmp alone, and there not to the folder in the script's first argument."""


def find_program(name: str) -> str:
    """Return the path of a program; Debian has those of PostgreSQL in a folder of each version."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name) or name


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_open(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def serve(command: Sequence[str | Path], port: int, user: int | None = None) -> Iterator[None]:
    """Run a server until the context ends; it listens on entry."""
    process = subprocess.Popen(command, user=user, cwd="/", stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: is_open(port), 60)
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty database in PostgreSQL, which does not run as root."""
    folder, port = tmp_path_factory.mktemp("postgres"), find_free_port()
    user = pwd.getpwnam("postgres").pw_uid if os.getuid() == 0 else os.getuid()
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    os.chown(folder, user, -1)
    data = folder / "data"
    create = [find_program("initdb"), "-D", data, "-U", "airflow", "-A", "trust", "-E", "UTF8"]
    subprocess.run(create, check=True, user=user, cwd="/", stdout=subprocess.DEVNULL)
    run = [find_program("postgres"), "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", folder]
    with serve(run, port, user):
        psql = [find_program("psql"), "-h", "127.0.0.1", "-p", str(port), "-U", "airflow", "postgres"]
        subprocess.run([*psql, "-c", "create database airflow"], check=True, stdout=subprocess.DEVNULL)
        yield f"postgresql+psycopg2://airflow@127.0.0.1:{port}/airflow"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis."""
    port, folder = find_free_port(), tmp_path_factory.mktemp("redis")
    run = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
    with serve(run, port):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Git repository with the DAG."""
    folder = tmp_path_factory.mktemp("repository")
    shutil.copytree(DAGS / "compete", folder / "compete", ignore=shutil.ignore_patterns("__pycache__"))
    run_git(folder, "init", "-q", "-b", "main")
    commit(folder)
    return folder


def run_git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=Test", "-c", "user.email=test@localhost", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path) -> None:
    """Commit everything in the folder."""
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-q", "-m", "A version of the DAG")


@pytest.fixture(scope="module")
def airflow(
    cluster: Cluster,
    environment: dict[str, str],
    database: str,
    broker: str,
    repository: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Airflow]:
    """An Airflow with two schedulers and two workers of Celery."""
    home = tmp_path_factory.mktemp("airflow")
    name_node = cluster.get_url("namenode.http").removeprefix("http://")
    bundle = {
        "name": "git",
        "classpath": "airflow.providers.git.bundles.git.GitDagBundle",
        "kwargs": {"tracking_ref": "main", "refresh_interval": 5},
    }
    settings = {
        "TRAINYARD_HOME": str(home),
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
        "AIRFLOW__CELERY__BROKER_URL": broker,
        "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{database}",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([bundle]),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(home / "bundles"),
        "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "5",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY": str(home / "logs" / "dag_processor"),
        "AIRFLOW__LOGGING__REMOTE_LOGGING": "True",
        "AIRFLOW__LOGGING__REMOTE_BASE_LOG_FOLDER": f"hdfs:///user/{USER}/logs",
        "AIRFLOW__LOGGING__REMOTE_LOG_CONN_ID": "webhdfs_default",
        "AIRFLOW__LOGGING__DELETE_LOCAL_LOGS": "True",
        "AIRFLOW_CONN_GIT_DEFAULT": json.dumps({"conn_type": "git", "host": str(repository)}),
        "AIRFLOW_CONN_WEBHDFS_DEFAULT": f"webhdfs://{USER}@{name_node}",
    }
    (home / "airflow").mkdir()
    (home / "airflow" / "airflow.db").touch()  # for stack/local/env.sh: the database is another one, and exists
    migrate = ". stack/local/env.sh && exec airflow db migrate"
    subprocess.run(["bash", "-c", migrate], env={**environment, **settings}, check=True, stdout=subprocess.DEVNULL)
    added = {SECOND_SCHEDULER: OPTIONS["scheduler"]}
    added |= {command: options.format(folder=home) for command, options in WORKERS.items()}
    wrapper = ("unshare", "--map-root-user", "--mount", "bash", "-euc", READ_ONLY, home / "airflow")
    with run_airflow({**environment, **settings}, home, added, wrapper) as airflow:
        airflow.api("POST", "pools", name="gpu", slots=4, include_deferred=True)
        wait_for(lambda: airflow.has_dag("compete"))
        yield airflow


def list_statuses(cluster: Cluster, name: str) -> list[object]:
    return [app["finalStatus"] for app in list_applications(cluster) if app["name"] == name]


@pytest.fixture(scope="module")
def run(airflow: Airflow, cluster: Cluster, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A finished run, during which workers and a scheduler were killed, and the DAG's code came to fail."""
    source = tmp_path_factory.mktemp("source") / "source.json"
    source.write_text('{"x": 1.5}\n')
    airflow.trigger("compete", "r", source=source.as_uri())
    wait_for(lambda: list_statuses(cluster, "compete.export"), 600)
    with (repository / "compete" / "recipe.py").open("a") as recipe:
        recipe.write(OTHER_VERSION)
    commit(repository)
    airflow.kill("scheduler")
    for worker in WORKERS:  # one of them has just submitted
        airflow.kill(worker)
    airflow.start(next(iter(WORKERS)))
    wait_for(lambda: airflow.get_state("compete", "r") in ("success", "failed"), 1500)
    return "r"


@pytest.mark.parametrize("task", ["export", "train"])
def test_a_stage_has_one_application_although_workers_and_a_scheduler_are_killed(
    airflow: Airflow, cluster: Cluster, run: str, task: str
) -> None:
    assert airflow.get_task_state("compete", run, task) == "success", airflow.read_logs("compete", task)
    assert list_statuses(cluster, f"compete.{task}") == ["SUCCEEDED"], airflow.read_logs("compete", task)


def test_a_run_uses_the_code_with_which_it_began(airflow: Airflow, repository: Path, run: str) -> None:
    first = run_git(repository, "rev-list", "--max-parents=0", "HEAD")
    assert airflow.api("GET", f"dags/compete/dagRuns/{run}")["bundle_version"] == first


def test_the_log_of_a_task_is_read_from_hdfs(airflow: Airflow, cluster: Cluster, run: str) -> None:
    log = json.dumps(airflow.api("GET", f"dags/compete/dagRuns/{run}/taskInstances/train/logs/1"))
    assert f"{find_application(cluster, 'compete.train')} ended SUCCEEDED" in log


def find_application(cluster: Cluster, name: str) -> str:
    return next(str(app["id"]) for app in list_applications(cluster) if app["name"] == name)
