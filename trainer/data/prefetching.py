"""Iterate ahead in a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def prefetch(items: Iterator[T], depth: int) -> Iterator[T]:
    """Yield `items`, which a thread iterates at most `depth` ahead. Its exception is raised here, in order."""
    ahead: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: T | None, error: BaseException | None) -> bool:
        while not stopped.is_set():
            try:
                ahead.put((item, error), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(item, None):
                    return
            put(None, StopIteration())
        except BaseException as error:
            put(None, error)

    thread = threading.Thread(target=work, name="loader", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ahead.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()
