"""Calls that end in time: each runs in a thread that is left behind if it does not return."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from trainyard.errors import DeadlineError

T = TypeVar("T")

_idle: list[_Worker] = []
"""Workers without a call; others are added while there are more calls than ever before."""
_workers: list[_Worker] = []


def call(what: str, seconds: float, function: Callable[[], T]) -> T:
    """Return the result of a function that waits for something outside of this process.

    Args:
        what: What it does, for the error: "stat hdfs://nn/data".
        seconds: How long it may take. After that nothing waits for its thread, a daemon, which ends with the process.
        function: The function.

    Raises:
        DeadlineError: It did not return in time. An error of its own is raised as it is.
    """
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    done: Future[T] = Future()
    worker.calls.put((function, done))
    try:
        return done.result(seconds)
    except TimeoutError:
        if done.done():  # its own
            raise
        raise DeadlineError(f"cannot {what}: no answer within {seconds:.0f} s") from None


def end_process(status: int) -> None:
    """End the process at once if a call that was given up has not returned; otherwise do nothing.

    Such a call may be in a library that was not written in Python. If it returns while the interpreter ends, it aborts
    the process ("FATAL: exception not rethrown"), whose exit status is lost.

    Args:
        status: The exit status.
    """
    if len(_idle) < len(_workers):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class _Worker:
    """A thread that takes one call after the other, and is idle in between."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        _workers.append(self)
        threading.Thread(target=self._run, name="call", daemon=True).start()

    def _run(self) -> None:
        while True:
            function, done = self.calls.get()
            try:
                result = function()
            except BaseException as error:
                _idle.append(self)
                done.set_exception(error)
            else:
                _idle.append(self)
                done.set_result(result)
                del result
            del function, done


def _forget() -> None:
    _idle.clear()
    _workers.clear()


os.register_at_fork(after_in_child=_forget)  # the threads are the parent's
