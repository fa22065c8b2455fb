"""The answers of a ResourceManager, and the difference between no answer and a refusal."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trainyard.yarn.resource_manager import ResourceManager, UnreachableError


def test_resource_managers_that_do_not_answer_are_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        urls = tuple(f"http://127.0.0.1:{closed.getsockname()[1]}/{name}" for name in ("rm1", "rm2"))
        with pytest.raises(UnreachableError, match=r"rm1: ConnectionError; .*rm2: ConnectionError"):
            ResourceManager(urls).tagged("t")


APPLICATION = """{"app": {
    "id": "application_1_1", "state": "FINISHED", "queue": "train", "startedTime": 1000, "launchTime": 2000,
    "finishedTime": 12000, "resourceSecondsMap": MAP
}}"""
AS_HADOOP_WRITES_IT = """{
    "entry": {"key": "memory-mb", "value": "10240"}, "entry": {"key": "vcores", "value": "20"},
    "entry": {"key": "yarn.io/gpu", "value": "10"}
}"""
AS_A_LIST = """{"entry": [
    {"key": "memory-mb", "value": "10240"}, {"key": "vcores", "value": "20"}, {"key": "yarn.io/gpu", "value": "10"}
]}"""


@pytest.fixture
def manager() -> Iterator[Callable[[str], ResourceManager]]:
    """A server of one answer to everything."""
    answer = b""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def answering(text: str) -> ResourceManager:
            nonlocal answer
            answer = text.encode()
            return ResourceManager((f"http://127.0.0.1:{server.server_address[1]}",))

        yield answering
        server.shutdown()


@pytest.mark.parametrize("resource_map", [AS_HADOOP_WRITES_IT, AS_A_LIST])
def test_resource_seconds_are_read_in_every_form_that_hadoop_writes(
    manager: Callable[[str], ResourceManager], resource_map: str
) -> None:
    application = manager(APPLICATION.replace("MAP", resource_map)).application("application_1_1")
    assert application and (application.started, application.launched, application.finished) == (1.0, 2.0, 12.0)
    assert application.resource_seconds == {"memory-mb": 10240.0, "vcores": 20.0, "yarn.io/gpu": 10.0}


def test_an_application_without_resource_seconds_has_none(manager: Callable[[str], ResourceManager]) -> None:
    application = manager(APPLICATION.replace("MAP", "null")).application("application_1_1")
    assert application and application.resource_seconds == {}
