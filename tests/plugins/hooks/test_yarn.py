"""The settings of a connection of type yarn."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.resource_managers import Answer, Server, application, serve
from trainyard.errors import TrainyardError
from trainyard.hooks import YarnHook
from trainyard.yarn import cluster
from trainyard.yarn.logs import read_running_log
from trainyard.yarn.resource_manager import Application

INFO = {"clusterInfo": {"hadoopVersion": "3.4.3", "state": "STARTED", "haState": "ACTIVE"}}


@pytest.fixture
def server() -> Iterator[Server]:
    """A ResourceManager, also behind a gateway."""
    known = {"info": INFO, "application_1795290845344_0001": {"app": application(1)}}
    with serve(lambda method, path, query: Answer(known[path.split("/")[-1]])) as server:
        yield server


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Callable[..., YarnHook]:
    """A function that writes the connection `yarn_prod`, and returns its hook."""

    def write(**fields: Any) -> YarnHook:
        monkeypatch.setenv("AIRFLOW_CONN_YARN_PROD", json.dumps({"conn_type": "yarn", **fields}))
        return YarnHook("yarn_prod")

    return write


def test_without_a_login_the_user_is_the_one_who_submits(
    connection: Callable[..., YarnHook], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "ada")
    assert connection(host="rm").get_conn().user == "ada"


def test_several_hosts_are_a_pair_of_resource_managers(connection: Callable[..., YarnHook]) -> None:
    manager = connection(host="rm1, rm2:9088", port=8188, login="etl").get_conn()
    assert manager.urls == ("http://rm1:8188", "http://rm2:9088")
    assert manager.user == "etl"


@pytest.mark.parametrize(("schema", "url"), [(None, "http://rm:8088"), ("https", "https://rm:8090")])
def test_the_port_follows_from_the_schema(connection: Callable[..., YarnHook], schema: str | None, url: str) -> None:
    assert connection(host="rm", schema=schema).get_conn().urls == (url,)


def test_a_gateway_is_asked_below_its_path_with_a_password(connection: Callable[..., YarnHook], server: Server) -> None:
    """As Knox has it."""
    sent: list[str] = []
    hook = connection(
        host=server.url.removeprefix("http://"), login="me", password="marker",
        extra={"auth": "basic", "gateway": "/gateway/default/resourcemanager"},
    )  # fmt: skip
    manager = hook.get_conn()
    manager.session.hooks["response"].append(lambda answer, **_: sent.append(answer.request.headers["Authorization"]))
    assert manager.application("application_1795290845344_0001")
    assert server.requests[0][1] == "/gateway/default/resourcemanager/v1/cluster/apps/application_1795290845344_0001"
    assert sent == ["Basic " + base64.b64encode(b"me:marker").decode()]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"host": ""}, "host is empty"),
        ({"host": "http://rm1:8088"}, "host: write it without http://, a path and a user, "),
        ({"host": "rm1,rm2/proxy"}, "host: write it without http://, a path and a user, "),
        ({"host": "rm", "extra": "{bad"}, "its extra is not a JSON object; write one, for example "),
        ({"host": "rm", "extra": '["a"]'}, "its extra is not a JSON object; write one, for example "),
        ({"host": "rm", "extra": "null"}, "its extra is not a JSON object; write one, for example "),
        ({"host": "rm", "schema": "ftp"}, "schema: write http or https"),
        ({"host": "rm", "extra": {"auth": "spnego"}}, "extra auth is not valid"),
        ({"host": "rm", "extra": {"gateway": "gateway"}}, "extra gateway is not valid"),
        ({"host": "rm", "extra": {"gatway": "/x"}}, "extra gatway is not valid"),
        ({"host": "rm", "extra": {"ca_file": "/none.pem"}}, "extra ca_file is no file of this machine"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(
    connection: Callable[..., YarnHook], fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(TrainyardError, match=f"connection 'yarn_prod': {problem}"):
        connection(**fields).get_conn()


def test_a_connection_that_does_not_exist_is_named() -> None:
    with pytest.raises(TrainyardError, match="there is no connection 'yarn_other'"):
        YarnHook("yarn_other").get_conn()


def test_a_setting_of_airflow_names_the_connection(
    connection: Callable[..., YarnHook], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection(host=server.url.removeprefix("http://"))
    monkeypatch.setenv("AIRFLOW__TRAINYARD__YARN_CONN_ID", "yarn_prod")
    assert cluster.resource_manager().urls == (server.url,)


def test_a_gateway_has_neither_settings_nor_logs_of_nodes(connection: Callable[..., YarnHook], server: Server) -> None:
    hook = connection(
        host=server.url.removeprefix("http://"), login="me", password="marker",
        extra={"auth": "basic", "gateway": "/gateway/default/resourcemanager"},
    )  # fmt: skip
    manager = hook.get_conn()
    assert manager.settings() == {}
    with pytest.raises(TrainyardError, match="the nodes do not get the password"):
        read_running_log(manager, running_at(server.url), "stdout")
    assert server.requests == []


def test_a_node_does_not_get_the_password_of_the_resource_manager(
    connection: Callable[..., YarnHook], server: Server
) -> None:
    hook = connection(
        host=server.url.removeprefix("http://"), login="me", password="marker", extra={"auth": "basic"}
    )  # fmt: skip
    with pytest.raises(TrainyardError, match="the nodes do not get the password"):
        read_running_log(hook.get_conn(), running_at(server.url), "stdout")
    assert server.requests == []


def running_at(node: str) -> Application:
    address = f"{node}/node/containerlogs/container_1795290845344_0001_01_000001/root"
    return Application("application_1", "RUNNING", "UNDEFINED", "etl", "", "", 0.0, driver_logs=address)


def test_certificates_are_trusted_whatever_the_environment_says(
    connection: Callable[..., YarnHook], tmp_path: Path
) -> None:
    file = tmp_path / "ca.pem"
    file.touch()
    assert connection(host="rm", extra={"ca_file": str(file)}).get_conn().verify == str(file)


def test_the_test_of_a_connection_names_the_version(connection: Callable[..., YarnHook], server: Server) -> None:
    hook = connection(host=server.url.removeprefix("http://"))
    assert hook.test_connection() == (True, "YARN 3.4.3 is STARTED, ACTIVE.")


def test_the_test_of_a_connection_says_what_is_wrong(connection: Callable[..., YarnHook]) -> None:
    works, problem = connection(host="127.0.0.1:1").test_connection()
    assert not works
    assert problem.startswith("no active ResourceManager answers: http://127.0.0.1:1")
