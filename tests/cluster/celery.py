"""A pipeline on Airflow's Celery executor, with Redis and PostgreSQL, whose workers are killed.

It is a row of `make matrix`, in an environment with Airflow's provider of Celery. Redis and PostgreSQL are those of the
machine (apt-get install redis-server postgresql); their servers here are the test's own.
"""

from __future__ import annotations

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
from tests.cluster.conftest import list_applications
from tests.cluster.jobs import wait_for
from tests.cluster.recovery.airflow import Airflow, run_airflow

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(2400)]

WORKERS = {
    f"celery worker --celery-hostname {name}@%h": f"--concurrency 2 --skip-serve-logs --pid {{folder}}/{name}.pid"
    for name in ("one", "two")
}


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
def airflow(
    cluster: Cluster, environment: dict[str, str], database: str, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Airflow]:
    """An Airflow with two workers of Celery."""
    home = tmp_path_factory.mktemp("airflow")
    settings = {
        "TRAINYARD_HOME": str(home),
        "AIRFLOW_HOME": str(home / "airflow"),
        "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
        "AIRFLOW__CELERY__BROKER_URL": broker,
        "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{database}",
    }
    (home / "airflow").mkdir()
    (home / "airflow" / "airflow.db").touch()  # for stack/local/env.sh: the database is another one, and exists
    migrate = ". stack/local/env.sh && exec airflow db migrate"
    subprocess.run(["bash", "-c", migrate], env={**environment, **settings}, check=True, stdout=subprocess.DEVNULL)
    workers = {command: options.format(folder=home) for command, options in WORKERS.items()}
    with run_airflow({**environment, **settings}, home, workers) as airflow:
        airflow.api("POST", "pools", name="gpu", slots=4, include_deferred=True)
        wait_for(lambda: airflow.has_dag("compete"))
        yield airflow


def list_statuses(cluster: Cluster, name: str) -> list[object]:
    return [app["finalStatus"] for app in list_applications(cluster) if app["name"] == name]


def test_a_pipeline_ends_with_one_application_a_stage_although_workers_are_killed(
    airflow: Airflow, cluster: Cluster, tmp_path: Path
) -> None:
    source = tmp_path / "source.json"
    source.write_text('{"x": 1.5}\n')
    airflow.trigger("compete", "r", source=source.as_uri())
    wait_for(lambda: list_statuses(cluster, "compete.export"), 600)
    for worker in WORKERS:  # one of them has just submitted
        airflow.kill(worker)
    airflow.start(next(iter(WORKERS)))
    wait_for(lambda: airflow.get_state("compete", "r") in ("success", "failed"), 1500)
    assert airflow.get_state("compete", "r") == "success", airflow.read_logs("compete", "export")
    for stage in ("export", "train"):
        assert list_statuses(cluster, f"compete.{stage}") == ["SUCCEEDED"], airflow.read_logs("compete", stage)
