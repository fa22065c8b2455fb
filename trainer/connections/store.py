"""The store of a worker group, by which torch's process groups exchange their addresses.

The driver serves it by authenticated connections (`channel`). torch's TCPStore serves whoever connects, and so lets any
process of the network replace an address of a worker by its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from trainyard.errors import UnavailableError
from trainyard.trainer.connections.channel import Channel, DriverAddress, Session

SERVICE = "store"
MAX_WAIT_SECONDS = 1.0
"""How long the driver waits for keys before it answers that some are missing; other threads of the worker wait then."""
ANSWER_SECONDS = 60.0
"""How long a worker waits for an answer of the driver beside that."""


class StoreServer:
    """The keys and values of a group, on the driver."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._arrivals: dict[str, asyncio.Event] = {}
        """The keys that somebody waits for."""
        self._calls: dict[str, Callable[..., Awaitable[Any]]] = {
            "set": self._set, "get": self._get, "wait": self._wait, "add": self._add, "delete": self._delete,
            "compare_set": self._compare_set, "count": self._count,
        }  # fmt: skip

    async def serve(self, session: Session) -> None:
        """Answer the requests of one connection until it ends."""
        while True:
            request = await session.receive()
            await session.send(await self._calls[request.pop("call")](**request))

    async def _set(self, values: dict[str, str]) -> None:
        self._values |= values
        for key in values:
            if arrival := self._arrivals.pop(key, None):
                arrival.set()

    async def _get(self, keys: list[str], seconds: float) -> list[str] | None:
        """Return the values of `keys`; None if some are missing after `seconds`."""
        await self._wait(keys, seconds)
        values = [self._values.get(key) for key in keys]
        return None if None in values else values  # type: ignore[return-value]

    async def _wait(self, keys: list[str], seconds: float) -> bool:
        """Return whether all `keys` are there within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                for key in keys:
                    while key not in self._values:
                        await self._arrivals.setdefault(key, asyncio.Event()).wait()
        except TimeoutError:
            return False
        return True

    async def _add(self, key: str, number: int) -> int:
        total = int(bytes.fromhex(self._values.get(key, "30"))) + number  # "30" is 0
        await self._set({key: str(total).encode().hex()})
        return total

    async def _compare_set(self, key: str, expected: str, desired: str) -> str:
        """Set a key if it has the `expected` value, or none where none is expected. Return its value."""
        if self._values.get(key, "") == expected:
            await self._set({key: desired})
        return self._values.get(key, expected)

    async def _delete(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    async def _count(self) -> int:
        return len(self._values)


class Store(dist.Store):  # type: ignore[name-defined,misc]
    """A store of torch whose keys and values are those of the driver's `StoreServer`.

    Args:
        address: The driver.
        timeout: How long to wait for keys.

    Raises:
        UnavailableError: The driver does not answer.
    """

    def __init__(self, address: DriverAddress, timeout: timedelta) -> None:
        super().__init__()
        self._address, self._timeout = address, timeout
        self._lock = threading.Lock()
        try:
            self._channel = Channel(address, SERVICE)
        except OSError as error:
            raise self._build_error(error) from error

    @property
    def timeout(self) -> timedelta:
        """How long to wait for keys."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Set how long to wait for keys."""
        self._timeout = timeout

    def close(self) -> None:
        """Close the connection; no process group may use the store any more."""
        self._channel.close()

    def clone(self) -> Store:
        """Return another client of the same store."""
        return Store(self._address, self._timeout)

    def set(self, key: str, value: str | bytes) -> None:
        """Set the value of a key."""
        self.multi_set([key], [value])

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Set the values of several keys."""
        self._request("set", values={key: _encode(value) for key, value in zip(keys, values, strict=True)})

    def get(self, key: str) -> bytes:
        """Return the value of a key once it has one."""
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of several keys once they have them."""
        return [bytes.fromhex(value) for value in self._await("get", keys, self._timeout)]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys have values. Raises torch's DistStoreError if they have none within the timeout."""
        self._await("wait", keys, timeout or self._timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys have values."""
        return bool(self._request("wait", keys=list(keys), seconds=0))

    def add(self, key: str, value: int) -> int:
        """Add to the number of a key, 0 at first, and return it."""
        return int(self._request("add", key=key, number=value))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Set a key that has the expected value, or no value if that is empty, and return its value."""
        answer = self._request("compare_set", key=key, expected=_encode(expected_value), desired=_encode(desired_value))
        return bytes.fromhex(answer)

    def delete_key(self, key: str) -> bool:
        """Remove a key, and return whether there was one."""
        return bool(self._request("delete", key=key))

    def num_keys(self) -> int:
        """Return the number of keys."""
        return int(self._request("count"))

    deleteKey, getNumKeys = delete_key, num_keys  # noqa: N815  by which torch calls them from C++

    def has_extended_api(self) -> bool:
        """Return whether several keys can be read at once."""
        return True

    def _await(self, call: str, keys: Sequence[str], timeout: timedelta) -> Any:
        end = time.monotonic() + timeout.total_seconds()
        while True:
            left = end - time.monotonic()
            if answer := self._request(call, keys=list(keys), seconds=max(0.0, min(left, MAX_WAIT_SECONDS))):
                return answer
            if left <= 0:
                raise dist.DistStoreError(
                    f"wait timeout after {timeout.total_seconds():.0f} s: another worker has not set {', '.join(keys)}"
                )

    def _request(self, call: str, **arguments: Any) -> Any:
        try:
            with self._lock:
                self._channel.send({"call": call} | arguments)
                return self._channel.receive(MAX_WAIT_SECONDS + ANSWER_SECONDS)
        except OSError as error:
            raise self._build_error(error) from error

    def _build_error(self, error: OSError) -> UnavailableError:
        host, port = self._address.host, self._address.port
        return UnavailableError(
            f"this worker cannot connect to the driver at {host}:{port}, which every worker group needs: {error}. "
            "Let the nodes connect to each other on all ports above 1024, and see that the name of the driver's node "
            "is not beside 127.0.1.1 in its /etc/hosts."
        )


def _encode(value: str | bytes) -> str:
    return (value.encode() if isinstance(value, str) else bytes(value)).hex()
