"""Events: what every process of every stage did when, as Chrome trace events, one JSON a line.

A process appends to a file of its own, `DIRECTORY/events/TASK/PROCESS.jsonl`. Times are
microseconds of the wall clock; durations are measured on the monotonic clock.
Format: the "Trace Event Format" of the Chromium project (phases X, C, i and M).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainyard import storage


class EventLog:
    """Collects the events of one process; `flush` puts them into words, and into the file.

    `behind_ns` is how far the clock of this host is behind the one that the run goes by.
    """

    def __init__(self, directory: str, task: str, process: str, thread: int = 0, behind_ns: int = 0) -> None:
        self._uri = storage.join(directory, "events", task, f"{process}.jsonl")
        self._thread, self._behind = thread, behind_ns
        self._new: list[tuple[str, str, int, dict[str, Any]]] = []
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._catching_up = threading.Thread()
        self._emit("M", "process_name", 0, args={"name": task})
        self._emit("M", "thread_name", 0, args={"name": process})

    @contextmanager
    def span(self, name: str, **args: Any) -> Iterator[None]:
        """The time that the body of the `with` takes."""
        wall, start = time.time_ns(), time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(name, wall, time.perf_counter_ns() - start, **args)

    def add(self, name: str, wall_ns: int, duration_ns: int, **args: Any) -> None:
        """A span that was measured elsewhere: wall clock of its start, and its length."""
        self._emit("X", name, wall_ns, dur=duration_ns // 1000, args=args)

    def counter(self, name: str, **values: float) -> None:
        """Values at this moment: a point of a curve for each keyword."""
        self._emit("C", name, time.time_ns(), args=values)

    def instant(self, name: str, **args: Any) -> None:
        self._emit("i", name, time.time_ns(), s="p", args=args)

    def flush(self) -> None:
        """Bring the file up to date with what was collected so far."""
        with self._lock:
            new = self._new[:]  # meanwhile other threads may add to it
            del self._new[: len(new)]
            self._lines += [self._line(*event) for event in new]
            storage.replace(self._uri, "".join(self._lines).encode())

    def catch_up(self) -> None:
        """Begin a `flush`, and do not wait for it; what it cannot write, or is new meanwhile, stays for the next."""
        if not self._catching_up.is_alive():
            self._catching_up = threading.Thread(target=self.flush, name="events", daemon=True)
            self._catching_up.start()

    def _emit(self, phase: str, name: str, wall_ns: int, **fields: Any) -> None:
        self._new.append((phase, name, wall_ns, fields))

    def _line(self, phase: str, name: str, wall_ns: int, fields: dict[str, Any]) -> str:
        begun = (wall_ns + self._behind) // 1000
        event = {"ph": phase, "name": name, "ts": begun, "pid": os.getpid(), "tid": self._thread}
        return json.dumps(event | fields, separators=(",", ":")) + "\n"


def counted(directory: str, task: str, process: str, name: str) -> list[dict[str, Any]]:
    """The points of counter `name` that a process of a task has told by now, by time; of all its starts."""
    root = storage.join(directory, "events", task)
    files = [file for file in storage.list_names(root) if file.startswith((f"{process}.", f"{process}, "))]
    events = [json.loads(line) for file in files for line in storage.read(storage.join(root, file)).splitlines()]
    found = [event for event in events if event["ph"] == "C" and event["name"] == name]
    return sorted(found, key=lambda event: event["ts"])


def read(directory: str) -> list[dict[str, Any]]:
    """All events of a run, by time. Processes are renumbered: `pid` is the task, `tid` the process in it."""
    events: list[dict[str, Any]] = []
    root = storage.join(directory, "events")
    for pid, task in enumerate(storage.list_names(root), start=1):
        for tid, name in enumerate(storage.list_names(storage.join(root, task))):
            lines = storage.read(storage.join(root, task, name)).splitlines()
            events += [json.loads(line) | {"pid": pid, "tid": tid} for line in lines]
    return sorted(events, key=lambda event: event["ts"])
