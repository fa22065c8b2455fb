"""Calls that do not return in time are left behind, and cost nothing but their thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from multiprocessing import get_context

import pytest

from trainyard import deadlines
from trainyard.errors import DeadlineError


def test_the_result_and_the_error_of_a_call_are_its_own() -> None:
    assert deadlines.call("add", 60, lambda: 1 + 1) == 2
    with pytest.raises(ZeroDivisionError):
        deadlines.call("divide", 60, lambda: 1 / 0)

    def fail() -> None:
        raise TimeoutError("of the function")

    with pytest.raises(TimeoutError, match="of the function"):
        deadlines.call("fail", 60, fail)


def test_a_call_that_does_not_return_is_an_error_and_later_ones_are_not_affected() -> None:
    released = threading.Event()
    with pytest.raises(DeadlineError, match=r"^cannot read hdfs://nn/data: no answer within 0 s$"):
        deadlines.call("read hdfs://nn/data", 0.05, released.wait)
    try:
        assert deadlines.call("add", 60, lambda: 1 + 1) == 2
    finally:
        released.set()


def test_calls_one_after_the_other_start_no_further_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines.call("add", 60, lambda: 1 + 1)  # one that a call before has left may become idle at any time
    monkeypatch.setattr(deadlines, "_Worker", None)
    assert [deadlines.call("add", 60, lambda: 1 + 1) for _ in range(100)] == [2] * 100


def call_in_child() -> int:
    return deadlines.call("add", 60, lambda: 1 + 1)


def test_a_forked_process_has_threads_of_its_own() -> None:
    deadlines.call("add", 60, lambda: 1 + 1)
    with get_context("fork").Pool(1) as pool:
        assert pool.apply_async(call_in_child).get(timeout=60) == 2


HANGING = """
import sys, time
from trainyard import deadlines
from trainyard.errors import DeadlineError
deadlines.call("answer", 10, lambda: None)
deadlines.end_process(9)
try:
    deadlines.call("hang", 0.05, lambda: time.sleep(600))
except DeadlineError as error:
    print(error)
deadlines.end_process(3)
"""


def test_a_process_with_a_call_that_does_not_return_ends_at_once_with_its_status_and_output() -> None:
    """And one whose calls have all returned ends as any other."""
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, env=environ)
    assert (ended.returncode, ended.stdout) == (3, "cannot hang: no answer within 0 s\n")
