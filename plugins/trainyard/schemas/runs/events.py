"""Events: what each process did when, as Chrome trace events, one JSON object a line.

Each process writes files of its own: `DIRECTORY/events/TASK/PROCESS.jsonl`, then `PROCESS.1.jsonl` and so on, because
not every storage can append to a file. Times are microseconds of the wall clock; durations are measured on the
monotonic clock. Format: the "Trace Event Format" of the Chromium project, phases X, C, i and M.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from trainyard import deadlines
from trainyard.errors import DeadlineError, noted
from trainyard.files import storage, uris
from trainyard.files.storage import StoredFile

PART_BYTES = 1 << 20
"""A process begins its next file once the current one is this large."""
MAX_BYTES = 64 << 20
"""The size of a file that is read at most: a process writes `PART_BYTES` and what its last flush adds."""
MAX_RUN_BYTES = 32 << 20
"""How much of the events of a run is read together; in memory they take ten times as much."""
AXES = ("epoch", "step")
"""The counters whose values are points of learning curves: each has its own name as the place of a point."""
CLOSE_SECONDS = 20.0
"""How long the end of a process waits for its last events to be written."""
_MAX_TIME = 1 << 60
"""The largest time in an event, in microseconds."""
_SHOWN = 80
"""The bytes of a line that are shown in an error."""
_FILE = re.compile(r"(?P<process>.+?)(?:\.(?P<part>\d+))?\.jsonl")


class EventLog:
    """Collect the events of one process in memory, and write them to its files by `flush`; a context manager.

    A flush writes the current file again, and the previous ones never, so it costs the same in each epoch. The files of
    a previous attempt of the same name are replaced.

    Args:
        directory: The run's directory, a URI.
        task: The task's name.
        process: The name of the process, and of its file.
        thread: The number of the process within the task.
        behind_ns: How far the clock of this host is behind the driver's, in nanoseconds; it is added to all times.
    """

    def __init__(self, directory: str, task: str, process: str, thread: int = 0, behind_ns: int = 0) -> None:
        self._directory, self._process = uris.join(directory, "events", task), process
        self._thread, self._behind = thread, behind_ns
        self._new: list[tuple[str, str, int, dict[str, Any]]] = []
        self._part, self._lines = 0, b""
        self._begun = self._written = self._closed = False
        self._lock = threading.Lock()
        self._flushing = threading.Thread()
        self._emit("M", "process_name", 0, args={"name": task})
        self._emit("M", "thread_name", 0, args={"name": process})

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def span(self, name: str, /, **args: Any) -> Iterator[None]:
        """Record a span for the time that the body of the `with` takes."""
        wall, start = time.time_ns(), time.perf_counter_ns()
        try:
            yield
        finally:
            self.add(name, wall, time.perf_counter_ns() - start, **args)

    def add(self, name: str, wall_ns: int, duration_ns: int, /, **args: Any) -> None:
        """Record a span that was measured elsewhere: the wall clock of its start, and its length."""
        self._emit("X", name, wall_ns, dur=duration_ns // 1000, args=args)

    def counter(self, name: str, /, **values: float) -> None:
        """Record values at this moment: a point of a curve for each keyword. Values that are not finite become null."""
        self._emit("C", name, time.time_ns(), args=values)

    def instant(self, name: str, /, **args: Any) -> None:
        """Record a moment."""
        self._emit("i", name, time.time_ns(), s="p", args=args)

    def flush(self) -> None:
        """Write the events that were recorded so far. If that fails, the next flush writes them."""
        with self._lock:
            new = self._new[:]  # other threads may append meanwhile
            del self._new[: len(new)]
            if self._written and not new:
                return
            self._written = False
            self._lines += "".join(self._line(*event) for event in new).encode()
            storage.replace(uris.join(self._directory, _file_name(self._process, self._part)), self._lines)
            if not self._begun:
                self._remove_other_parts()
            self._begun = self._written = True
            if len(self._lines) >= PART_BYTES:
                self._part, self._lines = self._part + 1, b""

    def flush_in_background(self) -> None:
        """Start a `flush` without waiting for it; events that it does not write stay for the next one."""
        if not self._closed and not self._flushing.is_alive():
            self._flushing = threading.Thread(target=self._try_to_flush, name="events", daemon=True)
            self._flushing.start()

    def close(self) -> None:
        """Wait for the flush in the background, and write the last events; later ones are dropped.

        Events that cannot be written, or not within `CLOSE_SECONDS`, are reported, and are no failure of the process.
        """
        if self._closed:
            return
        self._closed = True
        try:
            deadlines.call(f"write the last events of {self._process}", CLOSE_SECONDS, self._finish)
        except DeadlineError as error:
            print(error, flush=True)

    def _finish(self) -> None:
        if self._flushing.ident:
            self._flushing.join()
        self._try_to_flush()

    def _try_to_flush(self) -> None:
        try:
            self.flush()
        except Exception as error:  # each file system raises exceptions of its own
            print(f"cannot write events: {type(error).__name__}: {error}.", flush=True)

    def _remove_other_parts(self) -> None:
        for name in _group_files(storage.list_names(self._directory)).get(self._process, [])[1:]:
            storage.remove(uris.join(self._directory, name))

    def _emit(self, phase: str, name: str, wall_ns: int, **fields: Any) -> None:
        self._new.append((phase, name, wall_ns, fields))

    def _line(self, phase: str, name: str, wall_ns: int, fields: dict[str, Any]) -> str:
        begun = (wall_ns + self._behind) // 1000
        event = {"ph": phase, "name": name, "ts": begun, "pid": os.getpid(), "tid": self._thread} | fields
        try:
            return _to_json(event)
        except ValueError:
            return _to_json(event | {"args": _without_infinity(fields["args"])})


def read_counters(directory: str, task: str, process: str, names: Collection[str]) -> list[dict[str, Any]]:
    """Return the values of some counters that a process of a task has recorded, by time, over all its starts."""
    root = uris.join(directory, "events", task)
    processes = _group_files(storage.list_names(root))
    starts = [files for start, files in processes.items() if start == process or start.startswith(f"{process}, ")]
    values = [
        event for files in starts for event in _read_files(root, files) if event["ph"] == "C" and event["name"] in names
    ]
    return sorted(values, key=lambda event: event["ts"])


def read_process(directory: str, task: str, process: str) -> list[dict[str, Any]]:
    """Return the events of one process, in the order in which they were recorded. Raises FileNotFoundError."""
    root = uris.join(directory, "events", task)
    files = _group_files(storage.list_names(root)).get(process, [_file_name(process, 0)])
    return list(_read_files(root, files))


def read(directory: str, unreadable: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the events of a run, by time. `pid` numbers the task, `tid` the process within it.

    Where a run has more than `MAX_RUN_BYTES`, those of drivers are read first, then those of the first workers.

    Args:
        directory: The run's directory.
        unreadable: Where to note what was left out, and why a file, or a line of it, cannot be read; None raises the
            error, and notes nothing of what was left out.
    """
    events: list[dict[str, Any]] = []
    root = uris.join(directory, "events")
    stored = [file for file in storage.find_files(root) if re.fullmatch(r"[^/]+/[^./][^/]*", file.path)]
    selected = select_files(stored, MAX_RUN_BYTES)
    if unreadable is not None and len(selected) < len(stored):
        unreadable["events"] = (
            f"{len(stored) - len(selected):,} of {len(stored):,} files are left out, because {MAX_RUN_BYTES >> 20} MiB "
            f"of events are shown at most; all are in {root}"
        )
    names: dict[str, list[str]] = {file.path.partition("/")[0]: [] for file in stored}
    for file in selected:
        task, _, name = file.path.partition("/")
        names[task].append(name)
    for pid, (task, files) in enumerate(sorted(names.items()), start=1):
        for tid, (process, parts) in enumerate(_group_files(files).items()):
            found = [
                event | {"pid": pid, "tid": tid} for event in _read_files(uris.join(root, task), parts, unreadable)
            ]
            with noted(unreadable, f"{task}/{process}"):
                events += _check_names(found)
    return sorted(events, key=lambda event: event["ts"])


def select_files(files: Iterable[StoredFile], limit: int) -> list[StoredFile]:
    """Return the files of events, "TASK/PROCESS.jsonl", that are read of a run: at most so many bytes.

    Those of drivers come first, then those of each training's first worker, which have its curves, and of all others
    the first parts first, which have their names. One that is too large leaves its room to those behind it.
    """

    def order(file: StoredFile) -> tuple[int, int, str]:
        match = _FILE.fullmatch(file.path.partition("/")[2])
        process, part = (match["process"], int(match["part"] or 0)) if match else ("", 0)
        kind = 0 if process == "driver" else 1 if process.split(",")[0] == "worker 0" else 2
        return kind, part, file.path

    selected: list[StoredFile] = []
    for file in sorted(files, key=order):
        if file.bytes <= limit:
            limit -= file.bytes
            selected.append(file)
    return selected


def _to_json(event: dict[str, Any]) -> str:
    """Return the line of an event. Raises ValueError for a number that is not finite, which JSON does not have."""
    return json.dumps(event, separators=(",", ":"), allow_nan=False) + "\n"


def _without_infinity(args: dict[str, Any]) -> Any:
    """Return the arguments with None for each number that is not finite, at any depth."""
    return json.loads(json.dumps(args), parse_constant=lambda _: None)


def _file_name(process: str, part: int) -> str:
    return f"{process}.{part}.jsonl" if part else f"{process}.jsonl"


def _group_files(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the files of each process, both in order."""
    matches = [match for name in names if not name.startswith(".") and (match := _FILE.fullmatch(name))]
    parts = sorted((match["process"], int(match["part"] or 0), match[0]) for match in matches)
    processes: dict[str, list[str]] = {process: [] for process, _, _ in parts}
    for process, _, name in parts:
        processes[process].append(name)
    return processes


def _read_files(root: str, files: Iterable[str], unreadable: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
    for file in files:
        name, events = f"{root.rpartition('/')[2]}/{file}", list[dict[str, Any]]()
        with noted(unreadable, name):
            # What follows the last end of a line is the begin of one, of a process that was killed.
            content = storage.read(uris.join(root, file), MAX_BYTES)
            for number, line in enumerate(content.split(b"\n")[:-1], start=1):
                with noted(unreadable, name):
                    events.append(_parse(line, number))
        yield from events


def _parse(line: bytes, number: int) -> dict[str, Any]:
    """Return the event of a line. Raises ValueError if it is none."""
    with suppress(ValueError, RecursionError):
        event = json.loads(line)
        if isinstance(event, dict) and _is_event(event):
            return event
    shown = line[:_SHOWN].decode(errors="replace")
    raise ValueError(f"line {number} is not an event of this release: {shown!r}")


def _is_event(event: dict[str, Any]) -> bool:
    """Return whether fields of JSON are an event: readers calculate with its numbers."""
    phase, name, args = event.get("ph"), event.get("name"), event.get("args")
    if not (isinstance(phase, str) and isinstance(name, str) and isinstance(args, dict)):
        return False
    if not _is_number(event.get("ts"), _MAX_TIME):
        return False
    if phase == "X":
        return _is_number(event.get("dur"), _MAX_TIME) and _is_number(args.get("omitted", 0))
    if phase == "M":
        return isinstance(args.get("name"), str)
    if phase == "C":
        has_numbers = all(value is None or _is_number(value) for value in args.values())
        return has_numbers and (name not in AXES or isinstance(args.get(name), int))
    return name != "clock" or (_is_number(args.get("behind_ms")) and _is_number(args.get("error_ms")))


def _is_number(value: Any, limit: float = sys.float_info.max) -> bool:
    return isinstance(value, int | float) and abs(value) <= limit


def _check_names(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the events of a process. Raises ValueError if they do not begin with the names of task and process."""
    names = {event["name"] for event in events if event["ph"] == "M"}
    if events and not names.issuperset(("process_name", "thread_name")):
        raise ValueError("it has no names of its task and process")
    return events
