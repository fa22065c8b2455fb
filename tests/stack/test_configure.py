"""The containers' Hadoop is configured by the one source that the cluster of processes has too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from stack.compose import configure
from stack.hadoop import config
from trainyard.yarn import site

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
GPU = "yarn.nodemanager.resource-type.yarn.io/gpu"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all configuration, on a machine whose nodes count three GPUs."""
    folder = tmp_path_factory.mktemp("hadoop")
    configure.write(folder, gpus=3)
    return folder


def local(name: str) -> str:
    """The name of a daemon's container."""
    return f"{name}.localhost"


@pytest.mark.parametrize("name", configure.DAEMONS)
def test_a_daemon_is_the_service_of_its_name(name: str) -> None:
    assert COMPOSE["services"][name]["command"] == [name]


@pytest.mark.parametrize("name", [name for name in configure.DAEMONS if name != "gpunode1"])
def test_a_daemon_is_told_what_config_says(name: str, written: Path) -> None:
    expected = config.files(config.DAEMONS[name], configure.HOME, configure.ADDRESSES)
    found = {file: (written / name / file).read_text() for file in expected}
    assert found == expected


def test_clients_are_told_what_config_says(written: Path) -> None:
    expected = config.files(None, configure.HOME, configure.ADDRESSES)
    assert {file: (written / "client" / file).read_text() for file in expected} == expected


def test_the_node_of_the_partition_counts_the_gpus_of_the_machine(written: Path) -> None:
    assert site.properties(written / "gpunode1/node-resources.xml") == {GPU: "3"}
    yarn = site.properties(written / "gpunode1/yarn-site.xml")
    assert yarn["yarn.nodemanager.node-labels.provider.configured-node-partition"] == config.PARTITION


def test_every_daemon_listens_on_hadoops_own_ports_under_its_own_name() -> None:
    assert configure.ADDRESSES["namenode.rpc"] == "namenode.localhost:8020"
    assert configure.ADDRESSES["node1.http"] == "node1.localhost:8042"
    assert {address.split(":")[0] for address in configure.ADDRESSES.values()} == set(map(local, configure.DAEMONS))


@pytest.mark.parametrize("name", [*configure.DAEMONS, "history"])
def test_containers_and_browsers_know_a_daemon_by_the_same_name(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["hostname"] == local(name)
    assert service["networks"]["default"]["aliases"] == [local(name)]


@pytest.mark.parametrize("name", ["namenode", "resourcemanager", "node1", "gpunode1"])
def test_a_page_is_published_where_links_lead_to(name: str) -> None:
    [port] = COMPOSE["services"][name]["ports"]
    _, linked = configure.ADDRESSES[f"{name}.http"].split(":")
    assert port.endswith(f":-{linked}}}:{linked}")


def test_airflow_stores_where_the_name_node_is(written: Path) -> None:
    connection = json.loads(COMPOSE["services"]["scheduler"]["environment"]["AIRFLOW_CONN_TRAINYARD_DEFAULT"])
    file_system = site.properties(written / "client/core-site.xml")["fs.defaultFS"]
    assert connection["extra"]["storage"] == f"{file_system}/trainyard"


def test_the_resource_manager_is_found_from_the_clients_folder(written: Path) -> None:
    found = site.resource_managers(site.properties(written / "client/yarn-site.xml"))
    assert found == ("http://resourcemanager.localhost:8088",)


def test_applications_leave_their_events_where_the_history_reads_them(written: Path) -> None:
    lines = (written / "client/spark-defaults.conf").read_text().splitlines()
    settings = dict(line.split(" ", 1) for line in lines)
    assert settings["spark.eventLog.dir"] == settings["spark.history.fs.logDirectory"] == configure.EVENTS
    [port] = COMPOSE["services"]["history"]["ports"]
    assert port.endswith(settings["spark.yarn.historyServer.address"].removeprefix(local("history")))


def test_a_daemons_script_makes_what_the_configuration_names() -> None:
    script = (ROOT / "stack/compose/daemon.sh").read_text()
    assert f'"name": "{config.PARTITION}"' in script
    assert f"/webhdfs/v1/{configure.EVENTS.rsplit('/', 1)[-1]}?op=MKDIRS" in script
