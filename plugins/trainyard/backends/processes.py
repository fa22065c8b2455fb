"""Processes of one application on this machine, found by the tag that all of them inherit."""

from __future__ import annotations

import os

import psutil

TAG = "TRAINYARD_TAG"


def tagged(tag: str) -> list[psutil.Process]:
    """Every process whose environment carries `tag`, except this one.

    The environment is inherited by every descendant, so that it also finds those whose parent died.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(TAG) == tag:
                found.append(process)
        except psutil.Error:
            continue
    return found


def end(tag: str, grace: float = 3.0) -> int:
    """End every process of `tag`: SIGTERM, `grace` seconds, SIGKILL. Returns how many there were.

    It looks again after each round, for what was started meanwhile.
    """
    ended = 0
    while alive := tagged(tag):
        ended += len(alive)
        _signal(alive, hard=False)
        _, stubborn = psutil.wait_procs(alive, timeout=grace)
        _signal(stubborn, hard=True)
        psutil.wait_procs(stubborn, timeout=grace)
        grace = 0.0
    return ended


def _signal(processes: list[psutil.Process], hard: bool) -> None:
    for process in processes:
        try:
            process.kill() if hard else process.terminate()
        except psutil.NoSuchProcess:
            continue
