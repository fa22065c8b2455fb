"""A server between clients of S3 and the store, which answers as a store that is busy, or not at all."""

from __future__ import annotations

import http.client
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

STATUSES = {
    "SlowDown": 503, "ServiceUnavailable": 503, "InternalError": 500, "ExpiredToken": 400, "AccessDenied": 403,
}  # fmt: skip
"""The codes of S3's errors, and their status."""


class Faults:
    """What the server answers: a code of `STATUSES`, "reset" or "" for the store's own answer.

    Attributes:
        code: What the next requests get.
        left: The number of requests after which the store answers again.
    """

    def __init__(self) -> None:
        self.code, self.left = "", 0

    def take(self) -> str:
        """Return what the next request gets."""
        self.left -= 1
        return self.code if self.left >= 0 else ""


@contextmanager
def run() -> Iterator[Faults]:
    """Run the server in front of the store of this process's environment, which then has it in its place."""
    faults, store = Faults(), urlsplit(os.environ["AWS_ENDPOINT_URL"])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            code = faults.take()
            if code == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                self.connection.close()
                self.close_connection = True
                return
            if code:
                text = f"<Error><Code>{code}</Code><Message>in a test</Message></Error>".encode()
                self._send(STATUSES[code], {"Content-Type": "application/xml"}, text)
                return
            connection = http.client.HTTPConnection(store.hostname or "", store.port)
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            self._send(answer.status, dict(answer.getheaders()), answer.read())

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _answer  # noqa: N815  the names of http.server

        def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            length = (
                headers.get("Content-Length", "0")
                if self.command == "HEAD" and status == http.HTTPStatus.OK
                else str(len(body))
            )
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_MAX_ATTEMPTS": "1"}
        try:
            yield faults
        finally:
            server.shutdown()
