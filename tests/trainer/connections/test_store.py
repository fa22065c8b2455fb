"""The store of a worker group behaves as torch's TCPStore does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from trainyard.errors import UnavailableError
from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.connections.store import Store
from trainyard.trainer.group.group_server import GroupServer

SECONDS = timedelta(seconds=30)


@pytest.fixture(scope="module")
def server() -> Iterator[GroupServer]:
    with GroupServer("127.0.0.1") as running:
        yield running


@pytest.fixture(params=["ours", "torch's"])
def clients(request: pytest.FixtureRequest, server: GroupServer) -> Iterator[list[Any]]:
    """Two clients of the same store, each called from C++."""
    if request.param == "ours":
        inner: list[Any] = [Store(server.address, SECONDS) for _ in range(2)]
    else:
        first = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        inner = [first, dist.TCPStore("127.0.0.1", first.port, is_master=False, wait_for_workers=False)]
    yield [dist.PrefixStore(request.node.name, each) for each in inner]


@pytest.fixture
def store(clients: list[Any]) -> Any:
    return clients[0]


def test_values_of_any_bytes_are_stored(store: Any) -> None:
    store.set("größe", bytes(range(256)))
    assert store.get("größe") == bytes(range(256))
    store.set("größe", "")
    assert store.get("größe") == b""


def test_numbers_are_added_up(store: Any) -> None:
    assert [store.add("n", number) for number in (3, 0, -5)] == [3, 3, -2]
    assert store.get("n") == b"-2"


def test_a_value_is_replaced_where_it_is_the_expected_one(store: Any) -> None:
    assert store.compare_set("key", "", "first") == b"first"
    assert store.compare_set("key", "other", "second") == b"first"
    assert store.compare_set("key", "first", "second") == b"second"
    assert store.get("key") == b"second"


def test_several_keys_are_written_and_read_at_once(store: Any) -> None:
    store.multi_set(["a", "b"], ["1", "2"])
    assert store.multi_get(["b", "a"]) == [b"2", b"1"]
    assert store.check(["a", "b"]) and not store.check(["a", "c"])


def test_a_key_can_be_removed(store: Any) -> None:
    store.set("key", "value")
    assert store.delete_key("key") and not store.delete_key("key") and not store.check(["key"])


def test_a_wait_ends_when_the_last_key_is_set(clients: list[Any]) -> None:
    waiting, setting = clients
    timer = threading.Timer(0.2, setting.set, ("late", "here"))
    timer.start()
    waiting.set("early", "1")
    waiting.wait(["early", "late"], SECONDS)
    assert waiting.get("late") == b"here"
    timer.join()


def test_a_wait_has_an_end(store: Any) -> None:
    with pytest.raises(dist.DistStoreError, match="wait timeout after"):
        store.wait(["never"], timedelta(milliseconds=100))


def test_all_clients_have_the_same_keys(server: GroupServer) -> None:
    first, second = Store(server.address, SECONDS), Store(server.address, SECONDS).clone()
    first.set("shared", "value")
    assert second.get("shared") == b"value" and second.num_keys() == first.num_keys() > 0


def test_a_driver_that_cannot_be_reached_is_named() -> None:
    with GroupServer("127.0.0.1") as server:
        address, store = server.address, Store(server.address, SECONDS)
    named = r"^this worker cannot connect to the driver at 127.0.0.1:\d+, .* Let the nodes connect to each other on"
    with pytest.raises(UnavailableError, match=named):
        Store(address, SECONDS)
    with pytest.raises(UnavailableError, match=named):
        store.set("key", "value")
    with pytest.raises(UnavailableError, match=named), GroupServer("127.0.0.1") as server:
        Store(DriverAddress("127.0.0.1", server.address.port, b"another secret"), SECONDS)


def test_keys_that_are_there_are_found_without_waiting_while_others_wait(server: GroupServer) -> None:
    waiting, store = Store(server.address, SECONDS), Store(server.address, SECONDS)
    store.set("there", "1")
    thread = threading.Thread(target=waiting.multi_get, args=(["there", "comes later"],))
    thread.start()
    assert all(store.check(["there"]) and not store.check(["comes later"]) for _ in range(50))
    store.set("comes later", "1")
    thread.join(30)
    assert not thread.is_alive()
