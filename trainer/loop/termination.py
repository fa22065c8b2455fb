"""Notice SIGTERM without interrupting a step."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Termination:
    """Whether this process was asked to end (SIGTERM: preemption, or a node that is drained).

    A context; in a thread other than the main one, where signals cannot be caught, it is never asked.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Termination:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
