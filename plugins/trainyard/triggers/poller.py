"""Ask the ResourceManager what the triggers of a process wait for: one request for all of them, however many wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from trainyard.planning.paths import COMMON_TAG
from trainyard.yarn import cluster
from trainyard.yarn.resource_manager import LIVE, WAITING, Application, ResourceManager
from trainyard.yarn.snapshot import ClusterSnapshot

T = TypeVar("T")
Position = tuple[int, int]
"""The number of an application among those that wait in its queue, from 1, and how many these are."""

LISTED_PER_SECOND = 200
"""How many applications are listed in a second at most, on average: a longer list is requested less often."""


_EXECUTOR = ThreadPoolExecutor(4, thread_name_prefix="yarn")
"""Threads for applications. Those of asyncio's default executor are few, and all triggers of a process share them."""


_SNAPSHOTS = ThreadPoolExecutor(1, thread_name_prefix="yarn-snapshot")
"""The thread for snapshots, which take four requests: applications do not wait for them."""


_KILLERS = ThreadPoolExecutor(8, thread_name_prefix="yarn-kill")
"""Threads for kills, which are repeated for minutes during a failover: polls do not wait for them."""


class Shared(Generic[T]):
    """The last result of a function, or its error, for all who ask for it in one event loop.

    Args:
        function: The function.
        executor: The threads in which it is called.
    """

    def __init__(self, function: Callable[[], T], executor: Executor) -> None:
        self._function, self._executor = function, executor
        self._lock = asyncio.Lock()
        self._called: asyncio.Future[T] | None = None
        self._at = 0.0

    async def get(self, max_age: float) -> T:
        """Return the last result, or a new one if that is more than `max_age` seconds old."""
        async with self._lock:
            if self._called is None or time.monotonic() - self._at > max_age:
                called = asyncio.get_running_loop().run_in_executor(self._executor, self._function)
                await asyncio.wait([called])
                self._called, self._at = called, time.monotonic()
            called = self._called
        return called.result()


class SharedList(Shared[list[Application]]):
    """A list of applications, which is requested less often if it is long."""

    _length = 0

    async def get(self, max_age: float) -> list[Application]:
        """Return the last list, or a new one if that is older than `max_age` seconds, or than a long one may be."""
        is_long = self._length > LISTED_PER_SECOND
        listed = await super().get(max(max_age, self._length / LISTED_PER_SECOND) if is_long else max_age)
        self._length = len(listed)
        return listed


class Poller:
    """The applications of one cluster and snapshots of it, for all triggers of one event loop.

    The live applications are listed with a single request. One that is not among them has ended, or is new: it is asked
    for by its id.
    """

    def __init__(self) -> None:
        self._live = SharedList(self._list_live, _EXECUTOR)
        self._waiting = SharedList(self._list_waiting, _EXECUTOR)
        self._snapshot = Shared(cluster.take_snapshot, _SNAPSHOTS)
        self._manager: ResourceManager | None = None

    async def find(self, id: str, tag: str, max_age: float) -> tuple[Application | None, list[Application]]:
        """Return an application, None if the ResourceManager has none of this id, and the other live ones of its task.

        Args:
            id: The id of the application.
            tag: The tag of the applications of its task.
            max_age: How many seconds old an answer may be. That of a long list may be older.

        Raises:
            TrainyardError: The ResourceManager does not answer, or refuses the request.
        """
        of_task = [application for application in await self._live.get(max_age) if tag in application.tags]
        others = [application for application in of_task if application.id != id]
        found = next((application for application in of_task if application.id == id), None)
        if found is None:
            found = await asyncio.get_running_loop().run_in_executor(_EXECUTOR, self._request_one, id)
        return found, others

    async def find_position(self, application: Application, max_age: float) -> Position | None:
        """Return the number of an application among those that wait in its queue, the oldest first, and their count.

        Args:
            application: The application.
            max_age: How many seconds old an answer may be. That of a long list may be older.

        Returns:
            None for an application that does not wait.
        """
        if application.state != WAITING:
            return None
        ids = [other.id for other in await self._waiting.get(max_age) if other.queue == application.queue]
        return (ids.index(application.id) + 1, len(ids)) if application.id in ids else None

    async def take_snapshot(self, max_age: float) -> ClusterSnapshot:
        """Return a snapshot of the cluster that is at most `max_age` seconds old.

        Raises:
            TrainyardError: The ResourceManager does not answer, or its scheduler is another one.
        """
        return await self._snapshot.get(max_age)

    def _list_live(self) -> list[Application]:
        try:
            return self._get_manager().tagged(COMMON_TAG, LIVE)
        except Exception:  # an expired ticket, a configuration that is missing for a while
            self._manager = None
            raise

    def _list_waiting(self) -> list[Application]:
        return self._get_manager().in_state(WAITING)

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
