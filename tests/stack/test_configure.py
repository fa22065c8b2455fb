"""The Hadoop of the containers has the same configuration as the cluster of processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from stack.compose import configure
from stack.hadoop import config
from trainyard.files import hadoop_conf
from trainyard.yarn import site

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
GPU = "yarn.nodemanager.resource-type.yarn.io/gpu"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all configuration, for nodes with three GPUs."""
    folder = tmp_path_factory.mktemp("hadoop")
    configure.write(folder, gpus=3)
    return folder


def get_host(name: str) -> str:
    """Return the host name of a daemon's container."""
    return f"{name}.localhost"


@pytest.mark.parametrize("name", configure.DAEMONS)
def test_each_daemon_has_a_service_of_its_name(name: str) -> None:
    assert COMPOSE["services"][name]["command"] == [name]


@pytest.mark.parametrize("name", [name for name in configure.DAEMONS if name != "gpunode1"])
def test_the_files_of_a_daemon_are_those_of_config(name: str, folder: Path) -> None:
    expected = config.build_files(config.DAEMONS[name], configure.HOME, configure.ADDRESSES)
    files = {file: (folder / name / file).read_text() for file in expected}
    assert files == expected


def test_the_files_of_clients_are_those_of_config(folder: Path) -> None:
    expected = config.build_files(None, configure.HOME, configure.ADDRESSES)
    assert {file: (folder / "client" / file).read_text() for file in expected} == expected


def test_the_node_of_the_partition_has_the_gpus_of_the_machine(folder: Path) -> None:
    assert hadoop_conf.read_properties(folder / "gpunode1/node-resources.xml") == {GPU: "3"}
    yarn = hadoop_conf.read_properties(folder / "gpunode1/yarn-site.xml")
    assert yarn["yarn.nodemanager.node-labels.provider.configured-node-partition"] == config.PARTITION


def test_every_daemon_listens_on_hadoops_default_ports_under_its_name() -> None:
    assert configure.ADDRESSES["namenode.rpc"] == "namenode.localhost:8020"
    assert configure.ADDRESSES["node1.http"] == "node1.localhost:8042"
    assert {address.split(":")[0] for address in configure.ADDRESSES.values()} == set(map(get_host, configure.DAEMONS))


@pytest.mark.parametrize("name", [*configure.DAEMONS, "history"])
def test_a_daemon_has_the_same_name_for_containers_and_browsers(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["hostname"] == get_host(name)
    assert service["networks"]["default"]["aliases"] == [get_host(name)]


@pytest.mark.parametrize("name", ["namenode", "resourcemanager", "node1", "gpunode1"])
def test_a_page_is_published_at_the_port_of_its_links(name: str) -> None:
    [port] = COMPOSE["services"][name]["ports"]
    _, linked = configure.ADDRESSES[f"{name}.http"].split(":")
    assert port.endswith(f":-{linked}}}:{linked}")


def test_the_storage_of_airflow_is_on_the_name_node(folder: Path) -> None:
    connection = json.loads(COMPOSE["services"]["scheduler"]["environment"]["AIRFLOW_CONN_TRAINYARD_DEFAULT"])
    file_system = hadoop_conf.read_properties(folder / "client/core-site.xml")["fs.defaultFS"]
    assert connection["extra"]["storage"] == f"{file_system}/trainyard"


def test_the_resource_manager_is_found_from_the_clients_folder(folder: Path) -> None:
    urls = site.resource_managers(hadoop_conf.read_properties(folder / "client/yarn-site.xml"))
    assert urls == ("http://resourcemanager.localhost:8088",)


def test_applications_write_their_events_where_the_history_reads_them(folder: Path) -> None:
    lines = (folder / "client/spark-defaults.conf").read_text().splitlines()
    settings = dict(line.split(" ", 1) for line in lines)
    assert settings["spark.eventLog.dir"] == settings["spark.history.fs.logDirectory"] == configure.EVENTS
    [port] = COMPOSE["services"]["history"]["ports"]
    assert port.endswith(settings["spark.yarn.historyServer.address"].removeprefix(get_host("history")))


def test_the_script_of_daemons_creates_what_the_configuration_names() -> None:
    script = (ROOT / "stack/compose/daemon.sh").read_text()
    assert f'"name": "{config.PARTITION}"' in script
    assert f"/webhdfs/v1/{configure.EVENTS.rsplit('/', 1)[-1]}?op=MKDIRS" in script
