"""The clients of HDFS: shared by the threads of a process, and by no process that is forked from it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from tests.plugins.name_nodes import serve_silence
from trainyard.errors import DeadlineError, UnavailableError
from trainyard.files import filesystems, hdfs, retries, storage
from trainyard.schemas.datasets import versions
from trainyard.schemas.runs import checkpoint
from trainyard.trainer.checkpointing import dcp
from trainyard.trainer.connections.clock import Offset
from trainyard.trainer.group.outcome import build_failure

FIRST_USE = """
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from tests.plugins.name_nodes import serve_silence
from trainyard.files import filesystems, hdfs, retries, storage
from trainyard.errors import DeadlineError, UnavailableError

together = threading.Barrier(8)

def locate(number):
    together.wait(60)
    return filesystems.locate(f"hdfs://127.0.0.1:9/{number}")

with ThreadPoolExecutor(8) as pool:
    located = list(pool.map(locate, range(8)))
assert [path for _, path in located] == [f"/{number}" for number in range(8)]
assert len({id(client) for client, _ in located}) == 1, located
"""


@pytest.mark.slow
def test_threads_that_use_hdfs_first_at_the_same_time_share_one_client() -> None:
    """fsspec raised "Name (hdfs) already in the registry" in the workers of a group that was restarted."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(3):
        subprocess.run([sys.executable, "-c", FIRST_USE], env=environment, check=True, timeout=60)


def test_torch_reads_and_writes_checkpoints_by_the_same_client() -> None:
    uri = "hdfs://127.0.0.1:9/checkpoints#1/step-1"
    client, path = filesystems.locate(uri)

    def list_clients(_: int) -> list[Any]:
        return [dcp.Reader(uri, lambda: None).fs.client, dcp.Writer(uri, False, lambda: None).fs.client]

    with ThreadPoolExecutor(4) as pool:
        assert all(one is client for clients in pool.map(list_clients, range(8)) for one in clients)
    assert dcp.Reader(uri, lambda: None).path == path == "/checkpoints#1/step-1"


def test_each_name_node_has_a_client_of_its_own() -> None:
    uris = ["hdfs://127.0.0.1:9/a", "hdfs://user@127.0.0.1:9/b", "hdfs://127.0.0.1:10/a"]
    first, same, other = (filesystems.locate(uri)[0] for uri in uris)
    assert first is same is not other
    assert (first.address, other.address) == ("hdfs://127.0.0.1:9", "hdfs://127.0.0.1:10")


def connect_in_child(parents: int) -> bool:
    return id(filesystems.locate("hdfs://127.0.0.1:9/a")[0]) != parents


def test_a_process_that_is_forked_during_the_first_use_has_a_client_of_its_own() -> None:
    client, _ = filesystems.locate("hdfs://127.0.0.1:9/a")
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with hdfs._lock:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    try:
        with get_context("fork").Pool(1) as pool:
            assert pool.apply_async(connect_in_child, [id(client)]).get(timeout=60)
    finally:
        done.set()
        thread.join()


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, socket.socket]]:
    """The URI of a NameNode that never answers, and its socket."""
    with serve_silence(monkeypatch) as silent:
        yield silent


@pytest.mark.parametrize(
    "call",
    [
        storage.exists, storage.read, storage.list_names, storage.remove, lambda uri: storage.create(uri, b"1"),
        lambda uri: storage.checksum(uri), lambda uri: storage.find_files(uri),
    ],
    ids=["exists", "read", "list", "remove", "create", "checksum", "find"],
)  # fmt: skip
def test_a_name_node_that_does_not_answer_is_an_error_after_the_deadline(
    silent: tuple[str, socket.socket], call: Callable[[str], object]
) -> None:
    """One call of `exists` waited for a quarter of an hour."""
    uri, _ = silent
    with pytest.raises(UnavailableError, match=rf"cannot .* of {uri.removesuffix('/data')}: no answer within 0 s"):
        call(uri)


def test_after_a_deadline_the_next_call_uses_another_connection(silent: tuple[str, socket.socket]) -> None:
    uri, server = silent
    for _ in range(hdfs.CLIENTS):
        with pytest.raises(DeadlineError):
            storage.exists(uri)
        connection, _address = server.accept()
        connection.close()
    assert len(filesystems.locate(uri)[0].client._clients) == hdfs.CLIENTS
    with pytest.raises(DeadlineError):
        storage.exists(uri)
    assert len(filesystems.locate(uri)[0].client._clients) == hdfs.CLIENTS, "no more than these are ever created"


def test_a_call_that_missed_its_deadline_is_repeated(
    silent: tuple[str, socket.socket], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(retries, "RETRY_SECONDS", 0.5)
    uri, _ = silent
    with pytest.raises(UnavailableError, match=r"cannot read .*/data, for 0 s: DeadlineError: cannot open /data"):
        retries.read_file(uri)
    assert "trying again: DeadlineError" in capsys.readouterr().out


def test_a_lease_that_cannot_be_written_or_removed_is_no_failure(
    silent: tuple[str, socket.socket], capsys: pytest.CaptureFixture[str]
) -> None:
    with versions.lease(silent[0], 1, "reader"):
        pass
    assert "is read without a lease, so it may expire meanwhile: cannot call mkdirs" in capsys.readouterr().out


def test_a_checkpoint_that_cannot_be_listed_is_an_error_of_the_storage(
    silent: tuple[str, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as one of the user's code, so that the training failed instead of resuming."""
    monkeypatch.setattr(retries, "RETRY_SECONDS", 0.5)
    with pytest.raises(UnavailableError, match=r"cannot read hdfs://.*/data, for 0 s: DeadlineError") as raised:
        list(checkpoint.read_checkpoints(silent[0], "fingerprint"))
    assert build_failure(0, raised.value, Offset()).ended == "lost"


@pytest.mark.parametrize("error", [RuntimeError("RPC error: in safe mode\nstack"), OSError("connection reset")])
def test_an_error_of_hdfs_is_one_of_the_storage_and_not_of_the_users_code(error: Exception) -> None:
    """hdfs-native's RuntimeError ended a training as an error of the recipe would, where nothing repeated the call."""
    client = filesystems.locate("hdfs://127.0.0.1:9/a")[0].client

    def fail(_: object) -> None:
        raise error

    with pytest.raises(UnavailableError) as raised:
        client.run("list /a", fail)
    assert str(raised.value) == (
        f"cannot list /a of hdfs://127.0.0.1:9: {type(error).__name__}: {str(error).splitlines()[0]}"
    )
    assert build_failure(0, raised.value, Offset()).ended == "lost"
    error = FileNotFoundError("/a")
    with pytest.raises(FileNotFoundError):
        client.run("list /a", fail)


@pytest.mark.parametrize("name", ["a#b", "a?b", "a;b", "a%20b", "A B"])
def test_names_are_taken_as_they_are(name: str) -> None:
    assert filesystems.locate(f"hdfs://127.0.0.1:9/{name}")[1] == f"/{name}"
