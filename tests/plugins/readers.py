"""Read a file while it is replaced."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from trainyard.files import storage

SECONDS = 60


def read_while_replaced(uri: str, versions: Sequence[bytes]) -> list[bytes]:
    """Replace a file by one version after the other, and return what a reader read meanwhile.

    The reader has read the first version before the second is written. An exception of the reader is raised.
    """
    seen: list[bytes] = []
    reading, done = threading.Event(), threading.Event()

    def watch() -> None:
        try:
            while not done.is_set():
                seen.append(storage.read(uri))
                reading.set()
        finally:
            reading.set()

    storage.replace(uri, versions[0])
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            assert reading.wait(SECONDS)
            for version in versions[1:]:
                storage.replace(uri, version)
        finally:
            done.set()
        watching.result()
    return seen
