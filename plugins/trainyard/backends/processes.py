"""Find and end the processes of one application on this machine, by a tag that all of them inherit."""

from __future__ import annotations

import logging
import os
import time

import psutil

TAG = "TRAINYARD_TAG"
_POLL_SECONDS = 0.5
_log = logging.getLogger(__name__)


def find_tagged(tag: str) -> list[psutil.Process]:
    """Return every process with `tag` in its environment, except this one. A zombie has no environment.

    Every descendant inherits the environment, also one whose parent has exited.
    """
    tagged = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(TAG) == tag:
                tagged.append(process)
        except psutil.Error:
            continue
    return tagged


def end(tag: str, grace: float = 3.0, limit: float = 10.0) -> int:
    """End every process with `tag`: SIGTERM, then after `grace` seconds SIGKILL.

    It repeats until no process is left, because processes may start meanwhile, or until `limit` seconds have passed;
    those that are found last get SIGKILL. A process in uninterruptible sleep, for example of a hanging NFS server, ends
    when it wakes; it is logged.

    Returns:
        The number of processes that were ended.
    """
    alive, found = find_tagged(tag), set[psutil.Process]()
    deadline = time.monotonic() + grace + limit
    while alive and time.monotonic() < deadline:
        found.update(alive)
        _signal(alive, hard=False)
        _, remaining = psutil.wait_procs(alive, timeout=grace)
        _signal(remaining, hard=True)
        psutil.wait_procs(remaining, timeout=_POLL_SECONDS)
        alive, grace = find_tagged(tag), 0.0
    found.update(alive)
    _signal(alive, hard=True)
    _, alive = psutil.wait_procs(alive, timeout=_POLL_SECONDS)
    if alive:
        names = ", ".join(_describe(process) for process in alive)
        _log.warning("These processes did not end within %g seconds of SIGKILL: %s", limit, names)
    return len(found.difference(alive))


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.name()} ({process.pid}, {process.status()})"
    except psutil.Error:
        return f"process {process.pid}"


def _signal(processes: list[psutil.Process], hard: bool) -> None:
    for process in processes:
        try:
            process.kill() if hard else process.terminate()
        except psutil.NoSuchProcess:
            continue
