"""What containers wrote, of an application that has ended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from trainyard.errors import TrainyardError
from trainyard.planning.runtime import spark_environment
from trainyard.yarn.resource_manager import Application, ResourceManager

TAIL_BYTES = 65536
AGGREGATED_SECONDS = 60.0
READER = Path(__file__).parent / "aggregated.py"
_FILE = re.compile(
    r"^Container: (?P<container>\S+) on .*?^LogType:(?P<kind>\S+)$.*?^LogContents:\n(?P<text>.*?)^End of LogType:",
    re.MULTILINE | re.DOTALL,
)
_CONTAINER = re.compile(r"container_\w+")
_LOST = re.compile(r"(?P<container>container_\w+) on host: [^\n]*?[Ee]xit status: (?!0\b)-?\d+")

Logs = dict[str, dict[str, str]]
"""The text of each file, `stdout` and `stderr`, of each container."""


def of_driver(manager: ResourceManager, application: Application) -> dict[str, str]:
    """The end of what the driver wrote, by file; empty where YARN kept nothing.

    YARN puts logs together after the end; that is waited for, a minute at most.
    """
    until = time.monotonic() + AGGREGATED_SECONDS
    found: Application | None = application
    while found and found.log_status in ("NOT_START", "RUNNING") and time.monotonic() < until:
        time.sleep(0.5)
        found = manager.application(application.id)
    container = _CONTAINER.search(application.driver_logs)
    return of_containers(application, [container[0]]).get(container[0], {}) if container else {}


def of_containers(application: Application, containers: Sequence[str]) -> Logs:
    """The end of what `containers` wrote. Raises TrainyardError when the logs cannot be read."""
    command = [sys.executable, str(READER), application.id, application.user, str(TAIL_BYTES), *containers]
    env = os.environ | spark_environment()
    try:
        # Our own reader, with an id that YARN gave.
        done = subprocess.run(  # noqa: S603
            command, env=env, capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TrainyardError(f"the logs of {application.id} could not be read in {error.timeout:.0f} s.") from None
    if done.returncode:
        raise TrainyardError(f"the logs of {application.id} could not be read: {done.stderr.strip()[-500:]}")
    return parse(done.stdout)


def parse(printed: str) -> Logs:
    """Hadoop's own printing of logs, taken apart."""
    found: Logs = {}
    for file in _FILE.finditer(printed):
        found.setdefault(file["container"], {})[file["kind"]] = file["text"]
    return found


def lost_containers(driver: str) -> list[str]:
    """The containers that ended badly, as the driver's log tells, without repetition."""
    return list(dict.fromkeys(match["container"] for match in _LOST.finditer(driver)))
