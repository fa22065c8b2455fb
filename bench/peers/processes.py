"""Find and end the processes of a run on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

POLL_SECONDS = 0.05


def find_processes(token: str) -> dict[int, str]:
    """Return the processes with this token in their environment, which every descendant inherits: names by number."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"PEERS_RUN={token}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "comm").read_text().strip()
        except OSError:  # it has ended, or is another user's
            continue
    return found


def end(token: str, *processes: subprocess.Popen[bytes]) -> None:
    """Kill all processes of a run.

    Args:
        token: The token in their environment.
        processes: Those that this program started.
    """
    while running := find_processes(token):
        for pid in running:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in processes:
            process.poll()
        time.sleep(POLL_SECONDS)
    for process in processes:
        process.wait()
