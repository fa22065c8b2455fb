"""Send the metrics of a script to trackers beside the worker, whose script must not wait for a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Self

from trainyard.trainer.measuring import tracking
from trainyard.trainer.measuring.tracking import Point, Tracker

END_SECONDS = 120.0
"""How long the end of a worker waits for trackers."""
SEND_SECONDS = 5.0
"""How long points are collected after others were sent, unless a tracker asks for more."""


class BackgroundTracking:
    """Send points to trackers in a thread: those that are added within some seconds they get together.

    As a context manager it ends the runs of the trackers as failed, if `finish` was not called.

    Args:
        trackers: The trackers.
        seconds: How long points are collected after others were sent, unless a tracker asks for more.
    """

    def __init__(self, trackers: Sequence[Tracker], seconds: float = SEND_SECONDS) -> None:
        self._trackers, self._seconds = trackers, seconds
        self._succeeded, self._ending = False, threading.Event()
        self._points: SimpleQueue[Point | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._send, name="trackers", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ending.is_set():
            self.finish(succeeded=False)

    def add(self, number: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of an epoch or step."""
        self._points.put((number, dict(metrics)))

    def finish(self, succeeded: bool) -> None:
        """Wait until the trackers have what was added, and end their runs, as far as they answer in time.

        A tracker that answers later gets nothing more: a restarted group may have resumed its run by then.
        """
        self._succeeded = succeeded
        self._points.put(None)
        self._ending.set()
        self._thread.join(END_SECONDS)
        if self._thread.is_alive():
            for tracker in self._trackers:
                tracker.failed = True
            print(f"trackers did not take the last metrics within {END_SECONDS:.0f} s", flush=True)

    def _send(self) -> None:
        has_ended = False
        while not has_ended:
            added = [self._points.get(), *self._take_others()]
            has_ended = None in added
            if points := [point for point in added if point]:
                tracking.send(self._trackers, points)
            if not has_ended:
                self._ending.wait(max([self._seconds, *(each.pause for each in self._trackers if not each.failed)]))
        tracking.finish(self._trackers, self._succeeded)

    def _take_others(self) -> Iterator[Point | None]:
        with suppress(Empty):
            while True:
                yield self._points.get_nowait()
