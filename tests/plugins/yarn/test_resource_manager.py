"""A ResourceManager that does not answer is told from one that refuses."""

from __future__ import annotations

import socket

import pytest

from trainyard.yarn.resource_manager import ResourceManager, UnreachableError


def test_those_that_do_not_answer_are_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        urls = tuple(f"http://127.0.0.1:{closed.getsockname()[1]}/{name}" for name in ("rm1", "rm2"))
        with pytest.raises(UnreachableError, match=r"rm1: ConnectionError; .*rm2: ConnectionError"):
            ResourceManager(urls).tagged("t")
