"""Read the new lines of a driver's log now and then, for the log of a task that waits for its application."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from trainyard.spark_log import SparkLog
from trainyard.yarn import cluster, logs
from trainyard.yarn.resource_manager import Application, ResourceManager

FILES = ("stdout", "stderr")
PAUSE_SECONDS = 60.0
"""How long a node that does not answer is not asked again: a request to it takes seconds."""
MAX_WAIT_SECONDS = 1.0
"""How long a poll waits for a read. Lines that take longer are logged by a later poll."""
_READERS = ThreadPoolExecutor(4, thread_name_prefix="driver-log")
"""Threads for requests to nodes: neither other reads nor polls of the ResourceManager wait for them."""
Read = Callable[[Application, str], tuple[int, bytes]]
"""Return the length of a file of the driver's log, and its end."""


class DriverLogReader:
    """Return what a driver has logged since the last call, without Spark's own records below ERROR.

    Args:
        read: The function that reads the end of a file.
    """

    def __init__(self, read: Read | None = None) -> None:
        self._read = read or self._read_from_node
        self._manager: ResourceManager | None = None
        self._paused_until = float("-inf")
        self._reading: asyncio.Future[list[str]] | None = None
        self._length = dict.fromkeys(FILES, 0)
        self._filter = {file: SparkLog() for file in FILES}

    async def next_lines(self, application: Application) -> list[str]:
        """Return the new whole lines of all files; wait for a second at most, and after an error ask for none a minute.

        Raises:
            TrainyardError: The node does not answer, or refuses the request.
        """
        if self._reading is None:
            if time.monotonic() < self._paused_until:
                return []
            self._reading = asyncio.get_running_loop().run_in_executor(_READERS, self._next_lines, application)
        await asyncio.wait([self._reading], timeout=MAX_WAIT_SECONDS)
        if not self._reading.done():
            return []
        reading, self._reading = self._reading, None
        try:
            return reading.result()
        except Exception:
            self._manager, self._paused_until = None, time.monotonic() + PAUSE_SECONDS
            raise

    def _next_lines(self, application: Application) -> list[str]:
        return [line for file in FILES for line in self._next_of(application, file)]

    def _next_of(self, application: Application, file: str) -> list[str]:
        length, end = self._read(application, file)
        before = self._length[file]
        new = end[-(length - before) :] if length > before else b""
        whole = new[: new.rfind(b"\n") + 1]
        if not whole:
            return []
        left_out = length - before - len(new)
        self._length[file] = length - len(new) + len(whole)
        lines = whole.decode(errors="replace").splitlines()
        title = [f"[{left_out} bytes of the driver's {file} are left out here]"] if left_out else []
        return title + [line for line in lines if self._filter[file].keep(line)]

    def _read_from_node(self, application: Application, file: str) -> tuple[int, bytes]:
        self._manager = self._manager or cluster.resource_manager()
        return logs.read_running_log(self._manager, application, file)
