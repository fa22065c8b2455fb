"""A local HTTP server that answers as a ResourceManager does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

STANDBY = "<html><body>There is no active RM right now. Will retry in next 3 seconds.</body></html>"


@dataclass(frozen=True)
class Answer:
    """An HTTP answer; a text is HTML, anything else JSON."""

    body: Any
    status: int = 200


@dataclass
class Server:
    """A server and the requests that it received: the method, the path and the query, and the body."""

    url: str
    requests: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)


@contextmanager
def serve(answer: Callable[[str, str, dict[str, str]], Answer]) -> Iterator[Server]:
    """Start a server that answers a method, a path and a query."""
    server = Server("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            split = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(split.query).items()}
            length = int(self.headers.get("Content-Length") or 0)
            sent = json.loads(self.rfile.read(length)) if length else None
            server.requests.append((self.command, split.path, query, sent))
            answered = answer(self.command, split.path, query)
            is_html = isinstance(answered.body, str)
            body = (answered.body if is_html else json.dumps(answered.body)).encode()
            self.send_response(answered.status)
            self.send_header("Content-Type", "text/html" if is_html else "application/json;charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        server.url = f"http://127.0.0.1:{http.server_port}"
        yield server
        http.shutdown()


def write_yarn_site(folder: Path, monkeypatch: pytest.MonkeyPatch, *servers: Server) -> None:
    """Make servers the ResourceManagers of the cluster in HADOOP_CONF_DIR."""
    ids = [f"rm{number}" for number, _ in enumerate(servers, start=1)]
    properties = {"yarn.resourcemanager.ha.enabled": "true", "yarn.resourcemanager.ha.rm-ids": ",".join(ids)}
    for id, server in zip(ids, servers, strict=True):
        properties[f"yarn.resourcemanager.webapp.address.{id}"] = server.url.removeprefix("http://")
    entries = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items())
    (folder / "yarn-site.xml").write_text(f"<configuration>{''.join(entries)}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))


def application(number: int, state: str = "RUNNING", **fields: Any) -> dict[str, Any]:
    """Return an application as Hadoop 3.4 writes it; it was submitted in second `number`."""
    ended = state in ("FINISHED", "FAILED", "KILLED")
    container = f"container_1795290845344_{number:04d}_01_000001"
    return {
        "id": f"application_1795290845344_{number:04d}",
        "user": "root",
        "name": "toy.train",
        "queue": "train",
        "state": state,
        "finalStatus": {"FINISHED": "SUCCEEDED", "FAILED": "FAILED", "KILLED": "KILLED"}.get(state, "UNDEFINED"),
        "progress": 100.0 if ended else 10.0,
        "trackingUI": "History" if ended else "ApplicationMaster",
        "trackingUrl": f"http://rm1:8088/proxy/application_1795290845344_{number:04d}/",
        "diagnostics": "",
        "clusterId": 1795290845344,
        "applicationType": "SPARK",
        "applicationTags": "trainyard-tag",
        "priority": 0,
        "startedTime": 1000 * number,
        "launchTime": 1000 * number + 500,
        "finishedTime": 1000 * number + 9000 if ended else 0,
        "elapsedTime": 9000,
        "amContainerLogs": f"http://node1:8042/node/containerlogs/{container}/root",
        "amHostHttpAddress": "node1:8042",
        "masterNodeId": "node1:45454",
        "allocatedMB": -1 if ended else 3072,
        "allocatedVCores": -1 if ended else 3,
        "memorySeconds": 30720,
        "vcoreSeconds": 30,
        "queueUsagePercentage": 0.0 if ended else 12.5,
        "preemptedResourceMB": 0,
        "logAggregationStatus": "SUCCEEDED" if ended else "NOT_START",
        "unmanagedApplication": False,
        "amNodeLabelExpression": "",
        "resourceSecondsMap": {"entry": {"key": "memory-mb", "value": "30720"}},
        "timeouts": {"timeout": [{"type": "LIFETIME", "expiryTime": "UNLIMITED", "remainingTimeInSeconds": -1}]},
    } | fields


def applications(*listed: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a search for applications; Hadoop writes null for none."""
    return {"apps": {"app": list(listed)} if listed else None}
