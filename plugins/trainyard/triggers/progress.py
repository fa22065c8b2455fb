"""Read the progress of a training now and then, for the log of a task that is deferred meanwhile."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from trainyard.schemas.runs.worker_progress import GroupProgress

FIRST_SECONDS = 10.0
"""How often a document that does not exist yet is looked for."""
INTERVAL_SECONDS = 30.0
FRESH_SECONDS = 60.0
"""The age up to which what is read first is of a training that runs: it is written every few seconds."""
MAX_WAIT_SECONDS = 1.0
"""How long a poll waits for a read. One that takes longer is logged by a later poll."""
_READERS = ThreadPoolExecutor(2, thread_name_prefix="progress")
"""Threads for reads of the storage, which may be slow: polls of the ResourceManager do not wait for them."""


class ProgressReader:
    """Return the progress of a training as lines, at most one in half a minute.

    Args:
        uri: The progress document of the task. A job without a worker group never writes it.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._read_at = float("-inf")
        self._written_at: float | None = None
        self._reading: asyncio.Future[str] | None = None

    async def next_line(self) -> str:
        """Return the progress if it is due and was written since the last call, else ""; wait for a second at most."""
        if self._reading is None:
            interval = FIRST_SECONDS if self._written_at is None else INTERVAL_SECONDS
            if time.monotonic() - self._read_at < interval:
                return ""
            self._read_at = time.monotonic()
            self._reading = asyncio.get_running_loop().run_in_executor(_READERS, self._read)
        await asyncio.wait([self._reading], timeout=MAX_WAIT_SECONDS)
        if not self._reading.done():
            return ""
        reading, self._reading = self._reading, None
        return reading.result()

    def _read(self) -> str:
        try:
            progress = GroupProgress.load(self._uri)
        except Exception:  # there is none yet, or the storage is away: the training does not depend on it
            return ""
        before, self._written_at = self._written_at, progress.at
        is_of_earlier_attempt = before is None and abs(time.time() - progress.at) > FRESH_SECONDS
        if progress.training is None or progress.at == before or is_of_earlier_attempt:
            return ""
        return progress.training.describe()
