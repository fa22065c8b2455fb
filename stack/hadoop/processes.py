"""Processes of this machine, and the ports that they listen on."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path


def build_user_switch(user: str) -> list[str]:
    """Return the beginning of a command that runs as another user.

    That user may read all files, because the Python of this checkout may be in a folder of the user who submits.
    """
    group = grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
    capability = "+dac_read_search"
    return [
        "setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", f"--inh-caps={capability}",
        f"--ambient-caps={capability}",
    ]  # fmt: skip


def find_free_ports(names: list[str]) -> dict[str, int]:
    """Return ports that nothing listens on, below the range of outgoing connections."""
    candidates = iter(random.sample(range(20000, 32000), 12000))
    return {name: next(port for port in candidates if _is_free(port)) for name in names}


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def get_start_time(pid: int) -> str:
    """Return when a process started, in clock ticks; empty if it has ended. Start and id identify a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "XZ" else fields[19]


def reap(pid: int) -> None:
    """Take the exit status of a child that has ended, so that nothing of it is left."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def wait_until(seconds: float, condition: Callable[[], object]) -> bool:
    """Wait until the condition is true; return whether it was within `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False
