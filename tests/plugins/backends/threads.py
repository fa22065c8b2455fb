"""Run a backend in a thread, so that a test can kill it meanwhile."""

from __future__ import annotations

import threading

from trainyard.backends.base import Backend
from trainyard.errors import TrainyardError


def run_in_thread(backend: Backend) -> tuple[threading.Thread, list[str]]:
    """Run a backend, and return its thread and the list that gets its error."""
    errors: list[str] = []

    def run() -> None:
        try:
            backend.run(lambda line: None)
        except TrainyardError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors
