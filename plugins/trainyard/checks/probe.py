"""Probe the Python of a node: a container there imports what a stage needs.

The probe is an application with a single container, submitted over REST without Spark. It takes a second or two. Its
application master never registers, so YARN always reports it as failed; the exit status in the diagnostics is the
result.
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
    """No container was granted in time, because the nodes are busy."""


def find_import_error(
    manager: ResourceManager, queue: str, label: str | None, memory: int, python: str, modules: Sequence[str]
) -> str:
    """Return why `python` cannot import `modules` on a node of `label`; empty when it can.

    Args:
        manager: The client of the ResourceManager.
        queue: The queue to submit to.
        label: The node label, None for nodes without one.
        memory: The memory of the container, in MB.
        python: The path of the interpreter.
        modules: The names of the modules.

    Raises:
        TrainyardError: YARN refuses the container.
        NoRoomError: No container was granted within a minute.
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
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        application = manager.application(id)
        if application and not application.live:
            return application.diagnostics
        time.sleep(0.25)
    raise NoRoomError(f"no container was granted within {SECONDS:.0f} s.")


def _reason(diagnostics: str, python: str) -> str:
    status = _EXIT.search(diagnostics)
    if not status:
        raise TrainyardError(diagnostics.strip())
    if status[1] == "0":
        return ""
    stderr = _STDERR.search(diagnostics)
    lines = stderr[1].strip().splitlines() if stderr else []
    return lines[-1] if lines else f"{python} ended with exit status {status[1]}"
