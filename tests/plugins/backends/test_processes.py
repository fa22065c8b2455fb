"""Processes of an application are found by their tag, and ended within a limit."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import psutil
import pytest

from trainyard.backends import processes

STUBBORN = (
    "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); sys.stdin.read()"
)
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def tag() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def start(tag: str) -> Iterator[Start]:
    """Start Python programs with the tag, and end them after the test."""
    started = []

    def run(program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program], env=os.environ | {processes.TAG: tag}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def test_a_process_that_ignores_sigterm_is_killed(tag: str, start: Start) -> None:
    process = start(STUBBORN)
    assert process.stdout and process.stdout.readline() == "ready\n"
    assert processes.end(tag, grace=0.1) == 1
    assert not psutil.pid_exists(process.pid)
    assert processes.end(tag) == 0


def test_what_is_found_when_the_time_is_up_is_killed_too(tag: str, start: Start) -> None:
    """A child that was forked while its parent was ended, on a busy machine."""
    process = start(STUBBORN)
    assert process.stdout and process.stdout.readline() == "ready\n"
    assert processes.end(tag, grace=0, limit=0) == 1
    assert processes.find_tagged(tag) == []


def test_a_zombie_does_not_count(tag: str, start: Start) -> None:
    process = start("")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    assert processes.find_tagged(tag) == []
    assert processes.end(tag) == 0


def test_a_process_that_no_signal_ends_is_named_and_left(
    tag: str, start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one in uninterruptible sleep, which cannot be made here: signals have no effect."""
    process = start(STUBBORN)
    assert process.stdout and process.stdout.readline() == "ready\n"
    monkeypatch.setattr(processes, "_signal", lambda alive, hard: None)
    with caplog.at_level(logging.WARNING):
        assert processes.end(tag, grace=0.1, limit=0.2) == 0
    [line] = caplog.messages
    assert f"python ({process.pid}, " in line or f"python3.11 ({process.pid}, " in line
    assert "did not end within 0.2 seconds of SIGKILL" in line
