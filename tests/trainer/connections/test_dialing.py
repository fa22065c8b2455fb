"""Workers of different hosts connect to each other before torch does, which would wait for minutes."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

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


def test_a_worker_connects_to_one_worker_of_each_other_host(store: dist.Store, listeners: list[socket.socket]) -> None:
    dialing.dial_others(store, 1, HOSTS, listeners[1])
    connected = []
    for rank, listener in enumerate(listeners):
        listener.settimeout(0.2 if rank in (0, 1, 4) else 60)
        try:
            listener.accept()[0].close()
            connected.append(rank)
        except TimeoutError:
            continue
    assert connected == [2, 3]


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
