"""Snapshots: copies of the files of a folder that have changed, which are stored while the script writes new ones.

A script process imports this, so it needs the standard library alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

LISTING = "files.json"
CALL = "call"
TICK_SECONDS = 0.02
"""A file is copied when its last change is so old: the times of files tick, so that one within a tick is not seen."""
SETTLE_SECONDS = 10.0
"""How long a snapshot waits for a file that is being written."""
_LISTINGS = 3
"""How often a folder is listed while files vanish from it: what they were renamed to may be new."""
_NOT_IN_NAMES = re.compile(r"[\\:\x00-\x1f\x7f]")

State = tuple[int, int, int, int]
"""Size, times of modification and change in nanoseconds, and inode of a file: equal as long as it is not written."""
States = Mapping[str, State]
"""Path of a file, relative to its folder -> its state when it was stored."""
Warn = Callable[[str], object]


class SnapshotError(Exception):
    """The files of a folder cannot be stored as they are now."""


@dataclass(frozen=True)
class Entry:
    """A file of a snapshot.

    Attributes:
        copy: The name of its copy in the snapshot; None if the file has not changed since the snapshot before.
        state: Its state.
    """

    copy: str | None
    state: State


def list_files(folder: Path, warn: Warn | None = None) -> Iterator[tuple[str, Path]]:
    """Yield the relative path and the path of each file at any depth, sorted. A link to a file counts as the file.

    Args:
        folder: The folder.
        warn: Called for each link to a folder or to nothing, and what else is no file, which is left out; None raises.

    Raises:
        SnapshotError: There is what is no file, or a name that cannot be stored.
    """
    for parent, folders, files in os.walk(folder, onerror=_raise_unless_vanished):
        folders.sort()
        for name in sorted([*files, *folders]):
            path = Path(parent, name)
            if problem := _find_problem(path, is_file=name not in folders):
                if warn is None:
                    raise SnapshotError(f"{str(path)!r} {problem}.")
                warn(f"{str(path)!r} {problem}.")
            elif name not in folders:
                relative = path.relative_to(folder).as_posix()
                if not _is_storable(relative):
                    raise SnapshotError(
                        f"{str(path)!r} cannot be stored: write a name without ':', '\\' and control characters, in "
                        "UTF-8."
                    )
                yield relative, path


def read_state(path: Path) -> State:
    """Return the state of a file."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def has_changed(folder: Path, known: States, warn: Warn | None = None) -> bool:
    """Return whether the files of a folder are others than those whose states are known; `warn`: see `list_files`."""
    states = {}
    for name, path in list_files(folder, warn):
        with suppress(FileNotFoundError):  # it has vanished
            states[name] = read_state(path)
    return states != dict(known)


def take(folder: Path, known: States, target: Path, call: int = 0, warn: Warn | None = None) -> None:
    """Write a snapshot of a folder to the folder `target`, which must not exist and appears in one step.

    Args:
        folder: The folder.
        known: The states of the files that are stored already; those that have not changed are not copied.
        target: The snapshot.
        call: The number of the call that takes it, by which workers match theirs.
        warn: See `list_files`.

    Raises:
        FileExistsError: There is a snapshot already.
        SnapshotError: A file is being written, or cannot be stored.
    """
    staged = target.with_name(f".{target.name}-{os.getpid()}")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir()
    try:
        entries: dict[str, tuple[str | None, State]] = {}
        copies = count()
        for _ in range(_LISTINGS):
            before, entries, has_vanished = entries, {}, False
            for name, path in list_files(folder, warn):
                try:
                    state = read_state(path)
                    if name in before and before[name][1] == state:
                        entries[name] = before[name]
                    elif known.get(name) == state:
                        entries[name] = None, state
                    else:
                        copy = str(next(copies))
                        entries[name] = copy, _copy(path, staged / copy)
                except FileNotFoundError:
                    has_vanished = True
            if not has_vanished:
                break
        (staged / LISTING).write_text(json.dumps(entries))
        (staged / CALL).write_text(str(call))
        try:
            staged.rename(target)
        except OSError as error:
            if target.exists():
                raise FileExistsError(str(target)) from error
            raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def read(snapshot: Path) -> dict[str, Entry]:
    """Return the files of a snapshot, by their relative paths."""
    entries = json.loads((snapshot / LISTING).read_text())
    return {name: Entry(copy, parse_state(state)) for name, (copy, state) in entries.items()}


def read_call(snapshot: Path) -> int:
    """Return the number of the call that has taken a snapshot."""
    return int((snapshot / CALL).read_text())


def parse_state(values: list[int]) -> State:
    """Return a state that was stored as JSON."""
    size, modified, changed, inode = map(int, values)
    return size, modified, changed, inode


def write_known(file: Path, known: States) -> None:
    """Write the states that the next snapshot compares with, in one step."""
    staged = file.with_suffix(".new")
    staged.write_text(json.dumps(known))
    staged.replace(file)


def read_known(file: Path) -> dict[str, State]:
    """Return the states that `write_known` has written."""
    return {name: parse_state(state) for name, state in json.loads(file.read_text()).items()}


def _copy(path: Path, target: Path) -> State:
    """Copy a file that does not change meanwhile, and return its state. Raises FileNotFoundError if it vanishes."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        before = read_state(path)
        age = time.time() - max(before[1], before[2]) / 1e9
        time.sleep(min(max(TICK_SECONDS - age, 0), TICK_SECONDS))
        shutil.copyfile(path, target)
        if read_state(path) == before:
            os.utime(target, ns=(before[1], before[1]))
            return before
        if time.monotonic() > deadline:
            raise SnapshotError(
                f"{path} is written while it is stored; call store_checkpoints() after the file is complete."
            )


def _find_problem(path: Path, is_file: bool) -> str:
    """Return why a path is none of a file or a folder, "" if it is one, or has vanished."""
    if not is_file:
        return "is a link to a folder, which is not stored; write files there instead" if path.is_symlink() else ""
    try:
        mode = path.stat().st_mode
    except OSError:
        return "is a link to a file that does not exist; remove it" if path.is_symlink() else ""
    return "" if stat.S_ISREG(mode) else "is neither a file nor a folder; write it elsewhere"


def _is_storable(relative: str) -> bool:
    try:
        relative.encode()
    except UnicodeEncodeError:
        return False
    return not _NOT_IN_NAMES.search(relative)


def _raise_unless_vanished(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
