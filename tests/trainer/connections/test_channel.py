"""The connection of a worker to the driver: who gets one, and what a process without the secret can cost."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import psutil
import pytest

from trainyard.trainer.connections import channel as channels
from trainyard.trainer.connections.channel import Channel, DriverAddress, Server, Session

MEGABYTE = 1 << 20


async def echo(session: Session) -> None:
    while True:
        await session.send(await session.receive())


@pytest.fixture
def server() -> Iterator[Server]:
    with Server("127.0.0.1", {"echo": echo}) as running:
        yield running


def connect(server: Server) -> socket.socket:
    return socket.create_connection((server.address.host, server.address.port), 30)


def request(server: Server, message: object) -> object:
    channel = Channel(server.address, "echo")
    channel.send(message)
    answer = channel.receive()
    channel.close()
    return answer


@pytest.mark.parametrize(
    "message", [None, "", {"größe": [1, 2.5, True]}, "a" * (3 * MEGABYTE)], ids=lambda m: str(m)[:9]
)
def test_messages_of_all_lengths_arrive(server: Server, message: object) -> None:
    assert request(server, message) == message


def test_a_driver_whose_address_is_another_machines_listens_on_the_one_that_it_is_told_to_bind() -> None:
    """As in a container with a network of its own, whose ports the host forwards (`spark.driver.bindAddress`)."""
    with Server("192.0.2.1", {"echo": echo}, "127.0.0.1") as server:
        assert server.address.host == "192.0.2.1"
        forwarded = DriverAddress("127.0.0.1", server.address.port, server.address.secret)
        Channel(forwarded, "echo").close()


def test_a_worker_without_the_secret_gets_no_connection(server: Server) -> None:
    with pytest.raises(ConnectionError):
        Channel(DriverAddress(server.address.host, server.address.port, b"guessed"), "echo")


def test_a_wrong_proof_is_answered_by_none(server: Server) -> None:
    received = b""
    with connect(server) as worker, suppress(ConnectionResetError):
        worker.sendall(os.urandom(channels.CHALLENGE_BYTES + channels.CODE_BYTES))
        while part := worker.recv(4096):
            received += part
    assert len(received) <= channels.CHALLENGE_BYTES


def test_a_driver_without_the_secret_gets_no_message(server: Server) -> None:
    """As a process that listens on the port of a driver that has ended."""
    with Server("127.0.0.1", {"echo": echo}) as other:
        address = DriverAddress("127.0.0.1", other.address.port, server.address.secret)
        with pytest.raises(ConnectionError):
            Channel(address, "echo")


@pytest.mark.parametrize(
    "tamper", [lambda sent: sent.replace(b"hello", b"jello"), lambda sent: sent + sent], ids=["changed", "repeated"]
)
def test_messages_that_another_process_tampers_with_are_refused(
    server: Server, tamper: Callable[[bytes], bytes]
) -> None:
    """A connection whose bytes pass through another process."""
    with socket.create_server(("127.0.0.1", 0)) as between:

        def pass_on() -> None:
            worker, driver = between.accept()[0], connect(server)
            threading.Thread(target=copy, args=(driver, worker, bytes), daemon=True).start()
            copy(worker, driver, tamper)

        threading.Thread(target=pass_on, daemon=True).start()
        channel = Channel(DriverAddress("127.0.0.1", between.getsockname()[1], server.address.secret), "echo")
        channel.send("hello")
        with pytest.raises(ConnectionError):
            while True:
                assert channel.receive() == "hello"
                channel.send("again")
        channel.close()


def copy(source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(change(data) if b"hello" in data else data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def test_what_is_sent_without_the_secret_takes_no_memory(server: Server) -> None:
    process, sent = psutil.Process(os.getpid()), 0
    before = process.memory_info().rss
    with connect(server) as stranger, pytest.raises(ConnectionError):
        while sent < 300 * MEGABYTE:
            sent += stranger.send(b"x" * MEGABYTE)
    assert process.memory_info().rss - before < 50 * MEGABYTE
    assert request(server, "still here") == "still here"


def test_connections_without_the_secret_take_no_threads_and_end(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "CONNECT_SECONDS", 5.0)
    threads = threading.active_count()
    with ExitStack() as strangers:
        idle = [strangers.enter_context(connect(server)) for _ in range(300)]
        assert threading.active_count() <= threads
        assert request(server, "still here") == "still here"
        for stranger in idle:
            with pytest.raises(ConnectionResetError):
                while stranger.recv(1 << 10):
                    pass
                raise ConnectionResetError


def test_as_many_strangers_as_there_may_be_keep_no_worker_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "MAX_STRANGERS", 20)
    with ExitStack() as strangers:
        for _ in range(60):
            strangers.enter_context(connect(server))
        assert request(server, "still here") == "still here"
        assert len(server._strangers) <= 20


def test_a_message_may_not_be_longer_than_what_both_sides_allow(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "MAX_BYTES", 1000)
    with pytest.raises(ConnectionError):
        request(server, "a" * 2000)


def test_the_thread_of_the_driver_ends_with_its_connections() -> None:
    with Server("127.0.0.1", {"echo": echo}) as server:
        channel = Channel(server.address, "echo")
    with pytest.raises(ConnectionError):
        channel.send("anybody?")
        time.sleep(0.1)
        channel.receive()
    assert not [thread for thread in threading.enumerate() if thread.name == "monitor"]


def test_the_secret_is_in_no_log(server: Server) -> None:
    assert str(server.address.secret) not in f"{server.address!r} {server.address}"
