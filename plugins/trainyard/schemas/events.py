"""Events: what each process did when, as Chrome trace events, one JSON object a line.

Each process writes a file of its own, `DIRECTORY/events/TASK/PROCESS.jsonl`. Times are microseconds of the wall clock;
durations are measured on the monotonic clock. Format: the "Trace Event Format" of the Chromium project, phases X, C, i
and M.
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
    """Collect the events of one process in memory, and write them to its file by `flush`.

    Args:
        directory: The run's directory, a URI.
        task: The task's name.
        process: The name of the process, and of its file.
        thread: The number of the process within the task.
        behind_ns: How far the clock of this host is behind the driver's, in nanoseconds; it is added to all times.
    """

    def __init__(self, directory: str, task: str, process: str, thread: int = 0, behind_ns: int = 0) -> None:
        self._uri = storage.join(directory, "events", task, f"{process}.jsonl")
        self._thread, self._behind = thread, behind_ns
        self._new: list[tuple[str, str, int, dict[str, Any]]] = []
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._flushing = threading.Thread()
        self._emit("M", "process_name", 0, args={"name": task})
        self._emit("M", "thread_name", 0, args={"name": process})

    @contextmanager
    def span(self, name: str, **args: Any) -> Iterator[None]:
        """Record a span for the time that the body of the `with` takes."""
        wall, start = time.time_ns(), time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(name, wall, time.perf_counter_ns() - start, **args)

    def add(self, name: str, wall_ns: int, duration_ns: int, **args: Any) -> None:
        """Record a span that was measured elsewhere: the wall clock of its start, and its length."""
        self._emit("X", name, wall_ns, dur=duration_ns // 1000, args=args)

    def counter(self, name: str, **values: float) -> None:
        """Record values at this moment: a point of a curve for each keyword."""
        self._emit("C", name, time.time_ns(), args=values)

    def instant(self, name: str, **args: Any) -> None:
        """Record a moment."""
        self._emit("i", name, time.time_ns(), s="p", args=args)

    def flush(self) -> None:
        """Write the events that were recorded so far to the file."""
        with self._lock:
            new = self._new[:]  # other threads may append meanwhile
            del self._new[: len(new)]
            self._lines += [self._line(*event) for event in new]
            storage.replace(self._uri, "".join(self._lines).encode())

    def flush_in_background(self) -> None:
        """Start a `flush` without waiting for it; events that it does not write stay for the next one."""
        if not self._flushing.is_alive():
            self._flushing = threading.Thread(target=self.flush, name="events", daemon=True)
            self._flushing.start()

    def _emit(self, phase: str, name: str, wall_ns: int, **fields: Any) -> None:
        self._new.append((phase, name, wall_ns, fields))

    def _line(self, phase: str, name: str, wall_ns: int, fields: dict[str, Any]) -> str:
        begun = (wall_ns + self._behind) // 1000
        event = {"ph": phase, "name": name, "ts": begun, "pid": os.getpid(), "tid": self._thread}
        return json.dumps(event | fields, separators=(",", ":")) + "\n"


def read_counter(directory: str, task: str, process: str, name: str) -> list[dict[str, Any]]:
    """Return the values of a counter that a process of a task has recorded, by time, over all its starts."""
    root = storage.join(directory, "events", task)
    files = [file for file in storage.list_names(root) if file.startswith((f"{process}.", f"{process}, "))]
    events = [json.loads(line) for file in files for line in storage.read(storage.join(root, file)).splitlines()]
    values = [event for event in events if event["ph"] == "C" and event["name"] == name]
    return sorted(values, key=lambda event: event["ts"])


def read(directory: str) -> list[dict[str, Any]]:
    """Return all events of a run, by time. `pid` numbers the task, `tid` the process within it."""
    events: list[dict[str, Any]] = []
    root = storage.join(directory, "events")
    for pid, task in enumerate(storage.list_names(root), start=1):
        for tid, name in enumerate(storage.list_names(storage.join(root, task))):
            lines = storage.read(storage.join(root, task, name)).splitlines()
            events += [json.loads(line) | {"pid": pid, "tid": tid} for line in lines]
    return sorted(events, key=lambda event: event["ts"])
