"""Read the new lines of a driver's log now and then, for the log of a task that waits for its application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trainyard.spark_log import SparkLog
from trainyard.triggers.progress import READERS
from trainyard.yarn import cluster, logs
from trainyard.yarn.resource_manager import Application

FILES = ("stdout", "stderr")
Read = Callable[[Application, str], tuple[int, bytes]]
"""Return the length of a file of the driver's log, and its end."""


class DriverLogReader:
    """Return what a driver has logged since the last call, without Spark's own records below ERROR.

    Args:
        read: The function that reads the end of a file.
    """

    def __init__(self, read: Read | None = None) -> None:
        self._read = read or _read_from_node
        self._length = dict.fromkeys(FILES, 0)
        self._filter = {file: SparkLog() for file in FILES}

    async def next_lines(self, application: Application) -> list[str]:
        """Return the new whole lines of all files.

        Raises:
            TrainyardError: The node does not answer, or refuses the request.
        """
        return await asyncio.get_running_loop().run_in_executor(READERS, self._next_lines, application)

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


def _read_from_node(application: Application, file: str) -> tuple[int, bytes]:
    return logs.read_running_log(cluster.resource_manager(), application, file)
