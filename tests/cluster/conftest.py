"""A real Hadoop for all tests of this folder, started once, and an Airflow that submits to it."""

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
from trainyard.errors import TrainyardError  # noqa: E402
from trainyard.files import uris  # noqa: E402
from trainyard.yarn.resource_manager import LIVE, ResourceManager  # noqa: E402

ROOT = Path(__file__).parents[2]
Shell = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def kerberos() -> bool:
    """Whether the Hadoop of the tests requires Kerberos."""
    return False


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, kerberos: bool) -> Iterator[Cluster]:
    """A Hadoop for all tests. No application may be left when it ends."""
    with Cluster.launch(tmp_path_factory.mktemp("hadoop"), kerberos) as cluster:
        yield cluster
        assert [app["name"] for app in list_live(cluster)] == [], "no test ended these applications"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """End the applications that a failed test leaves; later tests would wait for their resources."""
    report = yield
    cluster = item.funcargs.get("cluster") if isinstance(item, pytest.Function) else None
    if report.failed and isinstance(cluster, Cluster):
        with contextlib.suppress(requests.RequestException, TrainyardError):  # the failed test may have ended daemons
            kill_all(cluster)
    return report


@pytest.fixture(scope="session")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="session")
def environment(cluster: Cluster, airflow_home: Path) -> dict[str, str]:
    """The environment to submit to the cluster, with Airflow's connections."""
    variables = {"TRAINYARD_HOME": str(airflow_home), "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags")}
    return os.environ | variables | {"STORAGE": cluster.storage, "CLUSTER_ENV": str(cluster.home / "env.sh")}


@pytest.fixture(scope="session")
def shell(environment: dict[str, str]) -> Shell:
    """A function that runs a shell command after sourcing both environments, as a user would."""

    def run(command: str) -> subprocess.CompletedProcess[str]:
        script = f'. stack/local/env.sh && . "$CLUSTER_ENV" && {command}'
        bash = ["bash", "-euo", "pipefail", "-c", script]
        return subprocess.run(bash, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def configured(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The cluster, with the environment of this process set to submit to it."""
    for name, value in cluster.build_environment().items():
        monkeypatch.setenv(name, value)
    return cluster


@pytest.fixture
def exports(configured: Cluster, tmp_path: Path) -> Exports:
    return Exports(tmp_path, uris.join(configured.storage, tmp_path.name))


@pytest.fixture
def writable(tmp_path: Path) -> Path:
    """A folder of this machine that containers, whose user is another, may write to."""
    folder = tmp_path / "writable"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def list_live(cluster: Cluster) -> list[dict[str, object]]:
    return [app for app in list_applications(cluster) if app["state"] in LIVE]


def kill_all(cluster: Cluster) -> None:
    """Kill all applications that have not ended."""
    manager = ResourceManager(
        (cluster.get_url("resourcemanager.http"),), USER, cluster.kdc and cluster.kdc.build_auth()
    )
    for app in list_live(cluster):
        manager.kill(str(app["id"]))


def list_applications(cluster: Cluster, tag: str | None = None) -> list[dict[str, object]]:
    """Return the ResourceManager's entries of all applications, or of those with a tag."""
    query = {"applicationTags": tag} if tag else {}
    return list((cluster.query_yarn("apps", **query)["apps"] or {}).get("app", []))
