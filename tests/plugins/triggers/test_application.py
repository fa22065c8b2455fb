"""The trigger that waits for an application."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from trainyard.triggers.application import ApplicationTrigger, describe_state
from trainyard.yarn.resource_manager import Application


@pytest.mark.parametrize(
    ("state", "diagnostics", "description"),
    [
        ("RUNNING", "", "application_1 is RUNNING"),
        (
            "ACCEPTED",
            "[Sat Nov 21 19:00:00 +0000 2026] Application is Activated, waiting for resources to be assigned for AM.  "
            "Details : AM Partition = gpu ; AM Resource Request = <memory:2048, vCores:1>\n",
            "application_1 is ACCEPTED: Application is Activated, waiting for resources to be assigned for AM.",
        ),
    ],
)
def test_the_state_has_no_figures_and_times_that_change(state: str, diagnostics: str, description: str) -> None:
    assert describe_state(Application("application_1", state, "UNDEFINED", "etl", diagnostics, "", 0.0)) == description


class Refusing(BaseHTTPRequestHandler):
    """A ResourceManager that refuses every user."""

    times: ClassVar[list[float]] = []

    def do_GET(self) -> None:
        self.times.append(time.monotonic())
        body = b'{"RemoteException": {"message": "who are you?"}}'
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Start a ResourceManager that refuses, and yield the times of its requests."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        name, value = "yarn.resourcemanager.webapp.address", f"127.0.0.1:{server.server_port}"
        entry = f"<property><name>{name}</name><value>{value}</value></property>"
        (tmp_path / "yarn-site.xml").write_text(f"<configuration>{entry}</configuration>")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        Refusing.times.clear()
        yield Refusing.times
        server.shutdown()


def first(trigger: ApplicationTrigger) -> dict[str, Any]:
    """Return the payload of the first event."""

    async def event() -> dict[str, Any]:
        return dict((await anext(aiter(trigger.run()))).payload)

    return asyncio.run(event())


def test_a_resource_manager_that_refuses_is_polled_until_the_patience_ends(refusing: list[float]) -> None:
    event = first(ApplicationTrigger("application_1", "tag", poll=0.01, patience=0.2))
    assert len(refusing) > 1
    assert event["application"] == "application_1"
    assert event["trouble"].endswith("who are you?")


def test_the_first_poll_for_a_reattached_application_is_delayed(refusing: list[float]) -> None:
    start = time.monotonic()
    first(ApplicationTrigger("application_1", "tag", reattached=True, poll=0.2, patience=0.1))
    assert refusing[0] - start >= 3 * 0.2
