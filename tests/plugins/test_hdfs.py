"""The clients of HDFS: shared by the threads of a process, and by no process that is forked from it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from trainyard import filesystems, hdfs
from trainyard.trainer.checkpointing import dcp

FIRST_USE = """
import threading
from concurrent.futures import ThreadPoolExecutor
from trainyard import filesystems, hdfs

together = threading.Barrier(8)

def locate(number):
    together.wait(60)
    return filesystems.locate(f"hdfs://127.0.0.1:9/{number}")

with ThreadPoolExecutor(8) as pool:
    located = list(pool.map(locate, range(8)))
assert [path for _, path in located] == [f"/{number}" for number in range(8)]
assert len({id(client) for client, _ in located}) == 1, located
"""


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


@pytest.mark.parametrize("name", ["a#b", "a?b", "a;b", "a%20b", "A B"])
def test_names_are_taken_as_they_are(name: str) -> None:
    assert filesystems.locate(f"hdfs://127.0.0.1:9/{name}")[1] == f"/{name}"
