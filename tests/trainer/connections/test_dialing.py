"""Workers of different hosts connect to each other before torch does, which would wait for minutes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
import torch.distributed as dist

from trainyard.errors import UnavailableError
from trainyard.trainer.connections import dialing
from trainyard.trainer.connections.channel import listen

HOSTS = ["node1", "node1", "node2", "node3", "node3"]


@pytest.fixture
def store() -> dist.Store:
    return dist.HashStore()


@pytest.fixture
def listeners(store: dist.Store) -> Iterator[list[socket.socket]]:
    """The listening sockets of the workers, by rank, as they have published them."""
    sockets = [listen("127.0.0.1") for _ in HOSTS]
    for rank, each in enumerate(sockets):
        store.set(f"listeners/{rank}", json.dumps(each.getsockname()))
    yield sockets
    for each in sockets:
        each.close()


def test_the_first_worker_of_a_host_connects_to_the_first_one_of_each_other_host(
    store: dist.Store, listeners: list[socket.socket]
) -> None:
    for rank in (0, 1):
        dialing.dial_others(store, rank, HOSTS, listeners[rank])
    connected = {}
    for rank, listener in enumerate(listeners):
        listener.setblocking(False)
        connected[rank] = 0
        with suppress(BlockingIOError):
            while True:
                listener.accept()[0].close()
                connected[rank] += 1
    assert connected == {0: 0, 1: 0, 2: 1, 3: 1, 4: 0}


@pytest.mark.parametrize(("nodes", "workers"), [(2, 8), (4, 4)])
def test_many_workers_of_each_host_connect_at_once(
    store: dist.Store, monkeypatch: pytest.MonkeyPatch, nodes: int, workers: int
) -> None:
    """A backlog that is full drops what arrives. Each host is an address of the loopback interface."""
    monkeypatch.setattr(dialing, "DIAL_SECONDS", 5.0)
    hosts = [f"127.0.0.{2 + rank // workers}" for rank in range(nodes * workers)]
    with ExitStack() as opened, ThreadPoolExecutor(len(hosts)) as pool:
        sockets = [opened.enter_context(listen(host, nodes)) for host in hosts]
        done = [pool.submit(dialing.dial_others, store, rank, hosts, each) for rank, each in enumerate(sockets)]
        for each in done:
            each.result()


def test_a_firewall_that_drops_what_is_sent_is_named_with_host_and_port_after_the_deadline(
    store: dist.Store, listeners: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener whose backlog is full drops what arrives, as a firewall does."""
    monkeypatch.setattr(dialing, "DIAL_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent, socket.create_connection(silent.getsockname()):
        store.set("listeners/2", json.dumps(silent.getsockname()))
        port = silent.getsockname()[1]
        expected = (
            rf"^rank 0 on node1 cannot connect to rank 2 on node2, at 127\.0\.0\.1:{port}: TimeoutError: timed out\."
        )
        with pytest.raises(UnavailableError, match=expected):
            dialing.dial_others(store, 0, HOSTS, listeners[0])


def test_a_port_that_is_refused_is_named(store: dist.Store, listeners: list[socket.socket]) -> None:
    listeners[3].close()
    with pytest.raises(UnavailableError, match=r"cannot connect to rank 3 on node3, at .*: ConnectionRefusedError"):
        dialing.dial_others(store, 0, HOSTS, listeners[0])
