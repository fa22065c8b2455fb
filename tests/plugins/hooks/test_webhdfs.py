"""HDFS over HTTP: each cluster by its own connection, and an end to waiting."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.plugins.resource_managers import Answer, serve
from trainyard import storage
from trainyard.hooks import TrainyardHook, webhdfs


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
    monkeypatch.setattr(storage, "_REGISTERED", {})


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


def test_the_only_cluster_is_that_of_uris_without_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with name_node("of-one") as one:
        connect(monkeypatch, "one", "hdfs://nn1:8020/trainyard", one)
        assert storage.list_names("hdfs:///data") == ["of-one"]


def test_a_name_node_that_does_not_answer_is_an_error_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhdfs, "TIMEOUT_SECONDS", (1.0, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connect(monkeypatch, "one", "hdfs://nn1:8020/trainyard", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(OSError, match="timed out"):
            storage.list_names("hdfs://nn1:8020/trainyard/runs")
