"""Whether a node has the Python that a stage needs: found out there, by a container that imports it.

The container is the only one of an application that is submitted by REST, without Spark, and is over in a
second or two. It is an application master that never registers, so YARN calls it failed whatever it did;
its exit status, which YARN tells in the diagnostics, says what became of it.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence

from trainyard.errors import TrainyardError
from trainyard.yarn.resource_manager import ResourceManager

SECONDS = 60.0
_EXIT = re.compile(r"exited with\s+exitCode: (-?\d+)")
_STDERR = re.compile(r"Last \d+ bytes of stderr :\n(.*?)\n\n", re.DOTALL)


class NoRoomError(TrainyardError):
    """No container was granted in time: the nodes are busy."""


def missing(
    manager: ResourceManager, queue: str, label: str | None, memory: int, python: str, modules: Sequence[str]
) -> str:
    """What keeps `python` from importing `modules` on a node of `label`, empty when nothing does.

    The container has `memory` MB. Raises TrainyardError when YARN refuses it, NoRoomError when it has no room
    for it within a minute.
    """
    program = "import " + ", ".join(modules)
    id = manager.submit(
        name="trainyard-probe", queue=queue, label=label, memory=memory,
        command=f"exec {shlex.quote(python)} -c {shlex.quote(program)}",
    )  # fmt: skip
    try:
        return _reason(_diagnostics(manager, id), python)
    finally:
        manager.kill(id)


def _diagnostics(manager: ResourceManager, id: str) -> str:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        found = manager.application(id)
        if found and not found.live:
            return found.diagnostics
        time.sleep(0.25)
    raise NoRoomError(f"no container was granted within {SECONDS:.0f} s.")


def _reason(diagnostics: str, python: str) -> str:
    status = _EXIT.search(diagnostics)
    if not status:
        raise TrainyardError(diagnostics.strip())
    if status[1] == "0":
        return ""
    said = _STDERR.search(diagnostics)
    lines = said[1].strip().splitlines() if said else []
    return lines[-1] if lines else f"{python} ended with exit status {status[1]}"
