"""Read the logs of an application that has ended."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from trainyard.yarn import java_programs
from trainyard.yarn.resource_manager import Application, ResourceManager

TAIL_BYTES = 65536
AGGREGATED_SECONDS = 60.0
READER = "log_reader.py"
_FILE = re.compile(
    r"^Container: (?P<container>\S+) on .*?^LogType:(?P<kind>\S+)$.*?^LogContents:\n(?P<text>.*?)^End of LogType:",
    re.MULTILINE | re.DOTALL,
)
_CONTAINER = re.compile(r"container_\w+")
_LOST = re.compile(r"(?P<container>container_\w+) on host: (?P<host>[^\s(]+?)[.,]? [^\n]*?[Ee]xit status: (?!0\b)-?\d+")

Logs = dict[str, dict[str, str]]
"""Container -> file (`stdout`, `stderr`) -> text."""


def read_driver_log(manager: ResourceManager, application: Application) -> dict[str, str]:
    """Return the end of the driver's log, by file; empty if YARN has none.

    Waits up to a minute for YARN to aggregate the logs.
    """
    until = time.monotonic() + AGGREGATED_SECONDS
    state: Application | None = application
    while state and state.log_status in ("NOT_START", "RUNNING") and time.monotonic() < until:
        time.sleep(0.5)
        state = manager.application(application.id)
    container = _CONTAINER.search(application.driver_logs)
    return read_container_logs(application, [container[0]]).get(container[0], {}) if container else {}


def read_container_logs(application: Application, containers: Sequence[str]) -> Logs:
    """Return the end of the logs of some containers. Raises TrainyardError if they cannot be read."""
    failure = f"the logs of {application.id} could not be read"
    arguments = (application.id, application.user, str(TAIL_BYTES), *containers)
    return parse(java_programs.run(READER, *arguments, failure=failure))


def parse(printed: str) -> Logs:
    """Parse logs as Hadoop prints them."""
    logs: Logs = {}
    for file in _FILE.finditer(printed):
        logs.setdefault(file["container"], {})[file["kind"]] = file["text"]
    return logs


def lost_containers(driver: str) -> dict[str, str]:
    """Return container -> host of those that failed according to the driver's log, in its order."""
    lost: dict[str, str] = {}
    for match in _LOST.finditer(driver):
        lost.setdefault(match["container"], match["host"])
    return lost
