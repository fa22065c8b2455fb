"""HDFS over HTTP: each cluster by its own connection, and an end to waiting."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.resource_managers import Answer, serve
from trainyard.errors import TrainyardError
from trainyard.files import filesystems, storage
from trainyard.hooks import TrainyardHook, trainyard, webhdfs


@contextmanager
def name_node(name: str) -> Iterator[str]:
    """Serve a file system with one directory, which has one file of this name."""
    status = {"type": "DIRECTORY", "length": 0, "modificationTime": 0, "pathSuffix": ""}
    file = {"type": "FILE", "length": 1, "modificationTime": 0, "pathSuffix": name}
    answer = Answer({"FileStatus": status, "FileStatuses": {"FileStatus": [file]}})
    with serve(lambda *_: answer) as server:
        yield server.url


@pytest.fixture(autouse=True)
def unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "_REGISTERED", {})
    monkeypatch.setattr(trainyard, "_ROUTES", {})
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)


def connect(monkeypatch: pytest.MonkeyPatch, name: str, root: str, url: str) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    route = {"conn_type": "webhdfs", "host": host, "port": int(port)}
    ours = {"conn_type": "trainyard", "extra": {"storage": root, "webhdfs": f"route_{name}"}}
    for conn_id, fields in ((f"route_{name}", route), (name, ours)):
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))
    TrainyardHook(name).get_conn()


def test_each_of_two_clusters_is_read_through_its_own_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with name_node("of-one") as one, name_node("of-two") as two:
        connect(monkeypatch, "one", "hdfs://nn1:8020/trainyard", one)
        connect(monkeypatch, "two", "hdfs://nn2:8020/trainyard", two)
        assert storage.list_names("hdfs://nn1:8020/trainyard/runs") == ["of-one"]
        assert storage.list_names("hdfs://nn2:8020/trainyard/runs") == ["of-two"]


def set_default(monkeypatch: pytest.MonkeyPatch, folder: Path, uri: str) -> None:
    """Write Hadoop's configuration, with this default file system."""
    entry = f"<property><name>fs.defaultFS</name><value>{uri}</value></property>"
    (folder / "core-site.xml").write_text(f"<configuration>{entry}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))


def test_the_default_cluster_is_that_of_uris_without_a_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_default(monkeypatch, tmp_path, "hdfs://nn1:8020/")
    with name_node("of-one") as one, name_node("of-two") as two:
        connect(monkeypatch, "one", "hdfs://nn1:8020/trainyard", one)
        connect(monkeypatch, "two", "hdfs://nn2:8020/trainyard", two)
        assert storage.list_names("hdfs:///data") == ["of-one"]


@pytest.mark.parametrize("default", ["", "hdfs://nn2:8020"])
def test_another_cluster_is_not_that_of_uris_without_a_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, default: str
) -> None:
    """They are read as Hadoop is configured, even if that is the only connection with WebHDFS."""
    set_default(monkeypatch, tmp_path, default)
    with name_node("of-one") as one:
        connect(monkeypatch, "one", "hdfs://nn1:8020/trainyard", one)
        assert filesystems.find_registered("hdfs:///data") is None


def test_two_routes_to_one_host_are_refused_with_both_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    with name_node("of-one") as one, name_node("of-two") as two:
        connect(monkeypatch, "one", "hdfs:///trainyard", one)
        with pytest.raises(TrainyardError) as refused:
            connect(monkeypatch, "two", "hdfs:///other", two)
        assert str(refused.value) == (
            "connection 'two' reads hdfs:// through WebHDFS connection 'route_two', and connection 'one' through "
            "'route_one'. Write the NameNode of each into its storage, for example hdfs://namenode:8020/trainyard; or, "
            "for one cluster, the same webhdfs into both."
        )
        assert storage.list_names("hdfs:///trainyard/runs") == ["of-one"]


def test_two_connections_of_one_route_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    with name_node("of-one") as one:
        connect(monkeypatch, "one", "hdfs:///trainyard", one)
        extra = {"storage": "hdfs:///other", "webhdfs": "route_one"}
        monkeypatch.setenv("AIRFLOW_CONN_TWO", json.dumps({"conn_type": "trainyard", "extra": extra}))
        assert TrainyardHook("two").get_conn().storage == "hdfs:///other"


def test_a_connection_that_was_corrected_makes_way_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with name_node("of-one") as one, name_node("of-two") as two:
        connect(monkeypatch, "one", "hdfs:///trainyard", one)
        connect(monkeypatch, "one", "hdfs://nn1:8020/trainyard", one)
        connect(monkeypatch, "two", "hdfs:///trainyard", two)
        assert storage.list_names("hdfs:///trainyard/runs") == ["of-two"]


@pytest.mark.parametrize("host", ["http://nn:9870", "nn1, nn2/webhdfs"])
def test_a_host_that_is_a_url_is_refused(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ROUTE", json.dumps({"conn_type": "webhdfs", "host": host}))
    with pytest.raises(TrainyardError) as refused:
        webhdfs.connect("route")
    assert str(refused.value) == (
        "connection 'route': host: write it without http://, a path and a user, for example host.example.com or "
        "host.example.com:9870; http or https is the schema, and a user the login."
    )


@pytest.mark.parametrize("read", [storage.list_names, storage.exists, storage.read, storage.list_files])
@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_refusal_is_an_error_and_no_absent_file(
    monkeypatch: pytest.MonkeyPatch, read: Callable[[str], Any], status: int
) -> None:
    refusal = {"exception": "AccessControlException", "message": "Permission denied: user=ada"}
    with serve(lambda *_: Answer({"RemoteException": refusal}, status)) as server:
        connect(monkeypatch, "one", "hdfs://nn1:8020/trainyard", server.url)
        with pytest.raises(OSError, match=r"Permission denied: user=ada|Authentication failure"):
            read("hdfs://nn1:8020/trainyard/runs")


def test_a_file_that_does_not_exist_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"exception": "FileNotFoundException", "message": "File does not exist: /x"}
    with serve(lambda *_: Answer({"RemoteException": missing}, 404)) as server:
        connect(monkeypatch, "one", "hdfs://nn1:8020/trainyard", server.url)
        assert not storage.exists("hdfs://nn1:8020/x") and storage.list_names("hdfs://nn1:8020/x") == []
        with pytest.raises(FileNotFoundError):
            storage.read("hdfs://nn1:8020/x")


def test_a_directory_with_files_is_not_removed_as_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {"type": "FILE", "length": 5, "modificationTime": 2000, "pathSuffix": "a"}
    refusal = {"exception": "PathIsNotEmptyDirectoryException", "message": "`/x is non empty': Directory is not empty"}

    def answer(method: str, path: str, query: dict[str, str]) -> Answer:
        if query["op"] == "DELETE":
            assert query["recursive"] == "false"
            return Answer({"RemoteException": refusal}, 403)
        listed = {"FileStatuses": {"FileStatus": [status]}}
        return Answer(listed if query["op"] == "LISTSTATUS" else {"FileStatus": status | {"type": "DIRECTORY"}})

    with serve(answer) as server:
        connect(monkeypatch, "one", "hdfs://nn1:8020/trainyard", server.url)
        with pytest.raises(FileExistsError):
            storage.remove_empty("hdfs://nn1:8020/x")


def test_the_source_may_be_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NameNode lists a file as one entry without a name."""
    status = {"type": "FILE", "length": 5, "modificationTime": 2000, "pathSuffix": ""}

    def answer(method: str, path: str, query: dict[str, str]) -> Answer:
        listed = {"FileStatuses": {"FileStatus": [status]}} if query["op"] == "LISTSTATUS" else {"FileStatus": status}
        return Answer(listed)

    with serve(answer) as server:
        connect(monkeypatch, "one", "hdfs://nn1:8020/trainyard", server.url)
        assert [(name, size) for name, size, _ in storage.list_files("hdfs://nn1:8020/x.csv")] == [("/x.csv", 5)]
        assert storage.list_names("hdfs://nn1:8020/x.csv") == []


def test_a_name_node_that_does_not_answer_is_an_error_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhdfs, "TIMEOUT_SECONDS", (1.0, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connect(monkeypatch, "one", "hdfs://nn1:8020/trainyard", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(OSError, match="timed out"):
            storage.list_names("hdfs://nn1:8020/trainyard/runs")


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("answer", [True, False])
def test_a_server_that_ignores_how_to_rename_is_refused(
    monkeypatch: pytest.MonkeyPatch, overwrite: bool, answer: bool
) -> None:
    """HttpFS answers as HDFS does without options: false, and no error, where the file exists."""
    with serve(lambda *_: Answer({"boolean": answer})) as server:
        connect(monkeypatch, "one", "hdfs://nn1:8020/trainyard", server.url)
        with pytest.raises(TrainyardError, match=r"does not know the options of RENAME.*HttpFS is such a server"):
            filesystems.find_registered("hdfs://nn1:8020/x").mv("/a", "/b", overwrite=overwrite)
