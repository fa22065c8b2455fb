"""Ask for the applications that the triggers of a process wait for: one request for all of them, however many wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakKeyDictionary

from trainyard.planning.paths import COMMON_TAG
from trainyard.yarn import cluster
from trainyard.yarn.resource_manager import LIVE, Application, ResourceManager

T = TypeVar("T")

_EXECUTOR = ThreadPoolExecutor(4, thread_name_prefix="yarn")
"""Threads for requests. Those of asyncio's default executor are few, and all triggers of a process share them."""


_KILLERS = ThreadPoolExecutor(8, thread_name_prefix="yarn-kill")
"""Threads for kills, which are repeated for minutes during a failover: polls do not wait for them."""


@dataclass(frozen=True)
class _Listing:
    """The live applications at a time of the monotonic clock, or why there is no answer."""

    at: float
    live: tuple[Application, ...] = ()
    error: Exception | None = None


class Poller:
    """The applications of one cluster, for all triggers of one event loop.

    The live ones are listed with a single request. An application that is not among them has ended, or is new: it is
    asked for by its id.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._listing = _Listing(float("-inf"))
        self._manager: ResourceManager | None = None

    async def find(self, id: str, tag: str, max_age: float) -> tuple[Application | None, list[Application]]:
        """Return an application, None if the ResourceManager has none of this id, and the other live ones of its task.

        Args:
            id: The id of the application.
            tag: The tag of the applications of its task.
            max_age: How many seconds old an answer may be.

        Raises:
            TrainyardError: The ResourceManager does not answer, or refuses the request.
        """
        listing = await self._list(max_age)
        if listing.error:
            raise listing.error
        of_task = [application for application in listing.live if tag in application.tags]
        others = [application for application in of_task if application.id != id]
        found = next((application for application in of_task if application.id == id), None)
        return found or await in_thread(self._request_one, id), others

    async def _list(self, max_age: float) -> _Listing:
        """Return the last listing, or a new one if it is too old; concurrent callers share one request."""
        async with self._lock:
            if time.monotonic() - self._listing.at > max_age:
                self._listing = await in_thread(self._request)
            return self._listing

    def _request(self) -> _Listing:
        try:
            live = self._get_manager().tagged(COMMON_TAG, LIVE)
        except Exception as error:  # an expired ticket, a configuration that is missing for a while
            self._manager = None
            return _Listing(time.monotonic(), error=error)
        return _Listing(time.monotonic(), tuple(live))

    def _request_one(self, id: str) -> Application | None:
        return self._get_manager().application(id)

    def _get_manager(self) -> ResourceManager:
        manager = self._manager or cluster.resource_manager()
        self._manager = manager
        return manager


_pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, Poller] = WeakKeyDictionary()


def get_poller() -> Poller:
    """Return the poller of the running event loop."""
    return _pollers.setdefault(asyncio.get_running_loop(), Poller())


async def kill(id: str) -> None:
    """Kill an application in a thread, which continues when the caller is canceled: Airflow waits for 30 seconds."""
    await asyncio.shield(asyncio.wrap_future(_KILLERS.submit(cluster.kill, id)))


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Return the result of a function that waits for the ResourceManager, called in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_EXECUTOR, function, *arguments)
