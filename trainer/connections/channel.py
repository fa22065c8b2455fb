"""Messages between the driver and its workers. Both sides prove that they have the secret of the worker group first.

A message is JSON, with its length before it, and a code of the connection and the message's number after it
(HMAC-SHA256), so that nobody else can send, change, repeat or reorder one. They are not encrypted. What a connection
may send without the secret is limited in bytes and time.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

CONNECT_SECONDS = 10.0
"""How long each side may take to prove that it has the secret."""
PAUSES = (0.05, 0.2, 0.8)
"""Seconds before a worker connects again: where very many connect at once, the driver may close the oldest."""
MAX_STRANGERS = 512
"""How many connections may be without that proof; a further one ends the oldest of them."""
MAX_BYTES = 1 << 26
"""The length of a message."""
CHALLENGE_BYTES = CODE_BYTES = 32
RECEIVE_BUFFER = 1 << 14
"""What the kernel keeps of a connection until it is read, and so what one without the secret can fill."""
_LENGTH = struct.Struct("!I")


@dataclass(frozen=True)
class DriverAddress:
    """Where workers connect to the driver, and the secret that they share with it."""

    host: str
    port: int
    secret: bytes = field(repr=False)


class ProtocolError(ConnectionError):
    """The other side does not have the secret, or has sent something that is not a message."""


def listen(host: str, backlog: int | None = None) -> socket.socket:
    """Return a socket that listens on a free port of `host` only; of several addresses on an IPv4 one, as Spark."""
    addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    family, *_, address = min(addresses, key=lambda each: each[0] != socket.AF_INET)
    return socket.create_server(address, family=family, backlog=backlog)


class _Codes:
    """The codes of one connection's messages, each with its direction and number.

    Args:
        secret: The secret of the worker group.
        challenges: The random bytes of the driver and those of the worker.
    """

    def __init__(self, secret: bytes, challenges: bytes) -> None:
        self._key = hmac.digest(secret, b"connection" + challenges, "sha256")
        self._numbers = {"driver": 0, "worker": 0}

    def compute(self, sender: str, data: bytes) -> bytes:
        """Return the code of the next message of a sender, "driver" or "worker"."""
        self._numbers[sender] += 1
        return hmac.digest(self._key, f"{sender} {self._numbers[sender]} ".encode() + data, "sha256")

    def pack(self, sender: str, message: Any) -> bytes:
        """Return a message as it is sent."""
        data = json.dumps(message).encode()
        return _LENGTH.pack(len(data)) + data + self.compute(sender, data)

    def unpack(self, sender: str, data: bytes, code: bytes) -> Any:
        """Return a message that was received."""
        if not hmac.compare_digest(code, self.compute(sender, data)):
            raise ProtocolError("the code of a message is wrong: another process has changed or repeated it")
        return json.loads(data)


def _get_length(data: bytes) -> int:
    (length,) = _LENGTH.unpack(data)
    if length > MAX_BYTES:
        raise ProtocolError(f"a message has {length:,} bytes; {MAX_BYTES:,} are allowed")
    return int(length)


def _prove(side: str, secret: bytes, challenges: bytes) -> bytes:
    return hmac.digest(secret, side.encode() + challenges, "sha256")


class Session:
    """A connection on the driver, of a worker that has proven to be one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, codes: _Codes) -> None:
        self._reader, self._writer, self._codes = reader, writer, codes

    async def receive(self) -> Any:
        """Return the next message. Raises EOFError if the worker has closed the connection."""
        data = await self._reader.readexactly(_get_length(await self._reader.readexactly(_LENGTH.size)))
        return self._codes.unpack("worker", data, await self._reader.readexactly(CODE_BYTES))

    async def send(self, message: Any) -> None:
        """Send a message."""
        self._writer.write(self._codes.pack("driver", message))
        await self._writer.drain()


Serve = Callable[[Session], Awaitable[None]]
"""Serves one connection until it ends."""


class Server:
    """Serve the workers of one group, in one thread whatever their number; a context manager.

    Args:
        host: The host of the driver, where workers connect.
        services: What serves a connection, by the name that the worker requests.
        bind_host: The host or address that it listens on, if that is another one.

    Attributes:
        address: Where workers connect.
    """

    def __init__(self, host: str, services: Mapping[str, Serve], bind_host: str | None = None) -> None:
        self._listener = listen(bind_host or host, MAX_STRANGERS)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._services = services
        self._strangers: dict[asyncio.StreamWriter, None] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), name="monitor")
        self._thread.daemon = True
        self._stopped = asyncio.Event()
        self.address = DriverAddress(host, self._listener.getsockname()[1], secrets.token_bytes(32))

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        server = await asyncio.start_server(
            self._serve, sock=self._listener, backlog=MAX_STRANGERS, limit=RECEIVE_BUFFER
        )
        await self._stopped.wait()
        server.close()
        connections = asyncio.all_tasks() - {asyncio.current_task()}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                codes = await self._authenticate(reader, writer)
                session = Session(reader, writer, codes)
                serve = self._services[await session.receive()]
            self._strangers.pop(writer)
            await serve(session)
        except (OSError, EOFError, TimeoutError):
            pass  # the worker has ended, or it is none
        except asyncio.CancelledError:
            pass  # the group has ended
        finally:
            self._strangers.pop(writer, None)
            writer.transport.abort()

    async def _authenticate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Codes:
        self._strangers[writer] = None
        if len(self._strangers) > MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.transport.abort()
        secret, own = self.address.secret, secrets.token_bytes(CHALLENGE_BYTES)
        writer.write(own)
        challenges = own + await reader.readexactly(CHALLENGE_BYTES)
        if not hmac.compare_digest(await reader.readexactly(CODE_BYTES), _prove("worker", secret, challenges)):
            raise ProtocolError("a process without the secret has connected")
        writer.write(_prove("driver", secret, challenges))
        return _Codes(secret, challenges)


class Channel:
    """A connection of a worker to the driver.

    Args:
        address: The driver.
        service: The name of what is to serve the connection.
        seconds: How long a connection may take.

    Raises:
        OSError: The driver cannot be reached, or what answers there does not have the secret.
    """

    def __init__(self, address: DriverAddress, service: str, seconds: float = CONNECT_SECONDS) -> None:
        self._sending = threading.Lock()
        for pause in (*PAUSES, None):
            self._socket = socket.create_connection((address.host, address.port), seconds)
            try:
                self._codes = self._authenticate(address.secret)
                self.send(service)
                return
            except OSError as error:
                self._socket.close()
                if pause is None or not isinstance(error, ConnectionResetError | BrokenPipeError):
                    raise
                time.sleep(pause)

    def send(self, message: Any) -> None:
        """Send a message. Several threads may do so."""
        with self._sending:
            self._socket.sendall(self._codes.pack("worker", message))

    def receive(self, seconds: float = CONNECT_SECONDS) -> Any:
        """Return the next message of the driver. Raises OSError if there is none for so long."""
        self._socket.settimeout(seconds)
        data = self._read(_get_length(self._read(_LENGTH.size)))
        return self._codes.unpack("driver", data, self._read(CODE_BYTES))

    def shut_down(self) -> None:
        """End a call that waits for the driver in another thread."""
        with suppress(OSError):  # the driver has closed it
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _authenticate(self, secret: bytes) -> _Codes:
        own = secrets.token_bytes(CHALLENGE_BYTES)
        challenges = self._read(CHALLENGE_BYTES) + own
        self._socket.sendall(own + _prove("worker", secret, challenges))
        if not hmac.compare_digest(self._read(CODE_BYTES), _prove("driver", secret, challenges)):
            raise ProtocolError("what answers there is not the driver of this worker group")
        return _Codes(secret, challenges)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError("the driver has closed the connection")
            data += part
        return bytes(data)
