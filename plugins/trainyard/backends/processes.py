"""Find and end the processes of one application on this machine, by a tag that all of them inherit."""

from __future__ import annotations

import os

import psutil

TAG = "TRAINYARD_TAG"


def find_tagged(tag: str) -> list[psutil.Process]:
    """Return every process with `tag` in its environment, except this one.

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


def end(tag: str, grace: float = 3.0) -> int:
    """End every process with `tag`: SIGTERM, then after `grace` seconds SIGKILL.

    It repeats until no process is left, because processes may start meanwhile.

    Returns:
        The number of processes that were ended.
    """
    ended = 0
    while alive := find_tagged(tag):
        ended += len(alive)
        _signal(alive, hard=False)
        _, remaining = psutil.wait_procs(alive, timeout=grace)
        _signal(remaining, hard=True)
        psutil.wait_procs(remaining, timeout=grace)
        grace = 0.0
    return ended


def _signal(processes: list[psutil.Process], hard: bool) -> None:
    for process in processes:
        try:
            process.kill() if hard else process.terminate()
        except psutil.NoSuchProcess:
            continue
