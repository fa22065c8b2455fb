"""Read the logs of an application, while it runs from the node of its driver, and later from YARN's storage."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import urljoin, urlsplit

import requests
from requests.auth import HTTPBasicAuth

from trainyard.errors import TrainyardError
from trainyard.yarn import java_programs
from trainyard.yarn.resource_manager import Application, ResourceManager

TAIL_BYTES = 65536
AGGREGATED_SECONDS = 60.0
FIRST_READ_SECONDS = 4.0
"""How long the logs of all nodes are awaited before those of some containers are tried; a lost node stores none."""
READER = "log_reader.py"
NODE_SECONDS = (3.0, 10.0)
"""How long to wait for a connection to a node, and for the next bytes of its answer."""
_FILE = re.compile(
    r"^Container: (?P<container>\S+) on .*?^LogType:(?P<kind>\S+)$.*?^LogContents:\n(?P<text>.*?)^End of LogType:",
    re.MULTILINE | re.DOTALL,
)
_RUNNING = re.compile(rb"^LogLength:(?P<length>\d+)$.*?^LogContents:\n(?P<rest>.*)", re.MULTILINE | re.DOTALL)
_CONTAINER = re.compile(r"container_\w+")
_LOST = re.compile(r"(?P<container>container_\w+) on host: (?P<host>[^\s(]+?)[.,]? [^\n]*?[Ee]xit status: (?!0\b)-?\d+")

Logs = dict[str, dict[str, str]]
"""Container -> file (`stdout`, `stderr`) -> text."""


def read_driver_log(manager: ResourceManager, application: Application) -> dict[str, str]:
    """Return the end of the driver's log, by file; empty if YARN has none. It is awaited as by `await_container_logs`.

    Raises:
        TrainyardError: The log could not be read.
    """
    container = _CONTAINER.search(application.driver_logs)
    if container is None:
        return {}
    host = urlsplit(application.driver_logs).hostname or ""
    return await_container_logs(manager, application, {container[0]: host}).get(container[0], {})


def await_container_logs(
    manager: ResourceManager,
    application: Application,
    containers: Mapping[str, str],
    seconds: float = AGGREGATED_SECONDS,
) -> Logs:
    """Return the end of the logs of some containers, once YARN has aggregated the logs of all nodes.

    Those of a container can be read once its own node has stored them, which another node that is lost does not delay,
    so they are tried meanwhile, each time after twice as long.

    Args:
        manager: The ResourceManager.
        application: The application, which has ended.
        containers: The host of each container.
        seconds: How long to wait at most.

    Raises:
        TrainyardError: The logs could not be read.
    """
    started, pause = time.monotonic(), FIRST_READ_SECONDS
    state: Application | None = application
    while state and state.log_status in ("NOT_START", "RUNNING"):
        waited = time.monotonic() - started
        if waited >= seconds:
            break
        if waited >= pause:
            pause *= 2
            with suppress(TrainyardError):  # nothing has been stored yet
                if containers.keys() <= (stored := read_container_logs(application, containers)).keys():
                    return stored
        time.sleep(0.5)
        state = manager.application(application.id)
    return read_container_logs(application, containers)


def read_running_log(manager: ResourceManager, application: Application, file: str) -> tuple[int, bytes]:
    """Read a file of the driver's log while the driver runs.

    Args:
        manager: The ResourceManager; its authentication is used.
        application: The application, whose driver has started.
        file: `stdout` or `stderr`.

    Returns:
        The length of the file in bytes, and at most its last 64 KiB; 0 and nothing for a file that does not exist yet.

    Raises:
        TrainyardError: The node does not answer, or refuses the request.
    """
    container = _CONTAINER.search(application.driver_logs)
    if container is None:
        return 0, b""
    if manager.is_behind_gateway or isinstance(manager.auth, HTTPBasicAuth):
        raise TrainyardError("the nodes do not get the password of the ResourceManager, so their logs cannot be read.")
    address = urljoin(application.driver_logs, f"/ws/v1/node/containers/{container[0]}/logs/{file}")
    query = {"size": str(-TAIL_BYTES)} | ({"user.name": manager.user} if manager.user and not manager.auth else {})
    try:
        answer = manager.session.get(
            address, params=query, auth=manager.auth, timeout=NODE_SECONDS, verify=manager.verify
        )
    except requests.RequestException as error:
        raise TrainyardError(f"{address} cannot be read: {type(error).__name__}.") from None
    if answer.status_code == HTTPStatus.NOT_FOUND:
        return 0, b""
    if not answer.ok:
        raise TrainyardError(f"{address} cannot be read: HTTP {answer.status_code}.")
    found = _RUNNING.search(answer.content)
    length = int(found["length"]) if found else 0
    return length, found["rest"][: min(length, TAIL_BYTES)] if found else b""


def read_container_logs(application: Application, containers: Mapping[str, str]) -> Logs:
    """Return the end of the logs of some containers, with the host of each. Raises TrainyardError if it cannot."""
    failure = f"the logs of {application.id} could not be read"
    arguments = (
        application.id, application.user, str(TAIL_BYTES), *(f"{name}@{host}" for name, host in containers.items())
    )  # fmt: skip
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
