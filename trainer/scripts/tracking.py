"""Send the metrics of a script to trackers beside the worker, whose script must not wait for a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from trainyard.trainer.measuring import tracking
from trainyard.trainer.measuring.tracking import Point, Tracker

END_SECONDS = 120.0
"""How long the end of a worker waits for trackers."""


class BackgroundTracking:
    """Send points to trackers in a thread: those that were added while a tracker was busy it gets together.

    Args:
        trackers: The trackers.
    """

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers, self._active = list(trackers), list(trackers)
        self._succeeded = False
        self._points: SimpleQueue[Point | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="trackers", daemon=True)
        self._thread.start()

    def add(self, number: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of an epoch or step."""
        self._points.put((number, dict(metrics)))

    def finish(self, succeeded: bool) -> None:
        """Wait until the trackers have what was added, and end their runs, as far as they answer in time."""
        self._succeeded = succeeded
        self._points.put(None)
        self._thread.join(END_SECONDS)
        if self._thread.is_alive():
            print(f"trackers did not take the last metrics within {END_SECONDS:.0f} s", flush=True)

    def _send(self) -> None:
        has_ended = False
        while not has_ended:
            added = [self._points.get(), *self._take_others()]
            has_ended = None in added
            if points := [point for point in added if point]:
                tracking.send(self._active, points)
        tracking.finish(self._trackers, self._succeeded)

    def _take_others(self) -> Iterator[Point | None]:
        with suppress(Empty):
            while True:
                yield self._points.get_nowait()
