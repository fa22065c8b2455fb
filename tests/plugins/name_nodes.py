"""A NameNode that does not answer, as one whose host is switched off."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from trainyard.files import hdfs


@contextmanager
def serve_silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, socket.socket]]:
    """Give the URI of a directory there, and the socket that accepts connections; calls have short deadlines."""
    monkeypatch.setattr(hdfs, "CALL_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        server.settimeout(60)
        yield f"hdfs://127.0.0.1:{server.getsockname()[1]}/data", server
