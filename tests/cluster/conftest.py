"""One real Hadoop for all tests of this folder, started once; an Airflow that submits to it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

_HOME = tempfile.TemporaryDirectory(prefix="trainyard-tests-", ignore_cleanup_errors=True)
os.environ.setdefault("AIRFLOW_HOME", f"{_HOME.name}/airflow")

import pytest  # noqa: E402
import requests  # noqa: E402

from stack.hadoop.cluster import Cluster  # noqa: E402
from stack.hadoop.config import USER  # noqa: E402
from tests.cluster.jobs import Exports  # noqa: E402
from trainyard import storage  # noqa: E402
from trainyard.errors import TrainyardError  # noqa: E402
from trainyard.yarn.resource_manager import LIVE, ResourceManager  # noqa: E402

ROOT = Path(__file__).parents[2]
Shell = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def kerberos() -> bool:
    """Whether the Hadoop of the tests asks for Kerberos."""
    return False


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, kerberos: bool) -> Iterator[Cluster]:
    """One Hadoop for all tests. At its end no application may be left."""
    with Cluster.running(tmp_path_factory.mktemp("hadoop"), kerberos) as cluster:
        yield cluster
        assert [app["name"] for app in live(cluster)] == [], "applications that no test ended"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a failed test leaves in the cluster ends with it: the next ones would wait for its room."""
    report = yield
    found = item.funcargs.get("cluster") if isinstance(item, pytest.Function) else None
    if report.failed and isinstance(found, Cluster):
        with contextlib.suppress(requests.RequestException, TrainyardError):  # a failed test may have ended daemons too
            end_all(found)
    return report


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="session")
def environment(cluster: Cluster, airflow_home: Path) -> dict[str, str]:
    """What a process needs to submit to the cluster, Airflow's connections among it."""
    mine = {"TRAINYARD_HOME": str(airflow_home), "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags")}
    return os.environ | mine | {"STORAGE": cluster.storage, "CLUSTER_ENV": str(cluster.home / "env.sh")}


@pytest.fixture(scope="session")
def shell(environment: dict[str, str]) -> Shell:
    """Runs a shell command to its end, as a user would who has sourced both environments."""

    def run(command: str) -> subprocess.CompletedProcess[str]:
        script = f'. stack/local/env.sh && . "$CLUSTER_ENV" && {command}'
        bash = ["bash", "-euo", "pipefail", "-c", script]
        return subprocess.run(bash, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def configured(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, with this process set up to submit to it."""
    for name, value in cluster.environment().items():
        monkeypatch.setenv(name, value)
    return cluster


@pytest.fixture
def exports(configured: Cluster, tmp_path: Path) -> Exports:
    return Exports(tmp_path, storage.join(configured.storage, tmp_path.name))


def live(cluster: Cluster) -> list[dict[str, object]]:
    return [app for app in applications(cluster) if app["state"] in LIVE]


def end_all(cluster: Cluster) -> None:
    """Kill every application that has not ended."""
    manager = ResourceManager((cluster.url("resourcemanager.http"),), USER, cluster.kdc and cluster.kdc.auth())
    for app in live(cluster):
        manager.kill(str(app["id"]))


def applications(cluster: Cluster, tag: str | None = None) -> list[dict[str, object]]:
    """What the ResourceManager says of all applications, or those with a tag."""
    query = {"applicationTags": tag} if tag else {}
    return list((cluster.yarn("apps", **query)["apps"] or {}).get("app", []))
