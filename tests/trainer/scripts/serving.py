"""Workers that serve their scripts in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from trainyard.files import storage
from trainyard.schemas.runs.events import EventLog
from trainyard.trainer import store_checkpoints
from trainyard.trainer.measuring.phases import CurrentPhase
from trainyard.trainer.scripts.checkpoints import SavedProgress
from trainyard.trainer.scripts.session import FOLDER, Restored, Session, restore
from trainyard.trainer.scripts.storing import KeyValueStore


class Worker:
    """One worker with its script, in this process."""

    def __init__(
        self,
        root: str,
        folder: Path,
        rank: int = 0,
        size: int = 1,
        found: Restored | None = None,
        current: CurrentPhase | None = None,
    ) -> None:
        self.current = current or CurrentPhase()
        (folder / "own").mkdir(parents=True)
        self.folder, self._root, self._rank, self._size = folder / "own", root, rank, size
        self.found = found or restore(root, self.folder)
        self.files = self.folder / FOLDER

    def serve(self, exchange: KeyValueStore | None = None) -> Session:
        events = EventLog(str(self.folder), "train", f"worker {self._rank}")
        self.session = Session(
            self._root, self.folder, self.found, self._rank, self._size, exchange, events, self.current
        )
        return self.session

    def call(self, function: Callable[[], None]) -> None:
        """Call a function as the script of this worker does."""
        os.environ |= self.session.variables
        try:
            function()
        finally:
            for name in self.session.variables:
                del os.environ[name]

    def store(self) -> None:
        """Store the files, and wait until they are."""
        self.call(store_checkpoints)
        wait_for(lambda: not (self.folder / "snapshot").exists())

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.files / name).write_text(text)

    def read(self) -> dict[str, str]:
        return read_files(self.files)


def read_files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def names(root: str, folder: str = "") -> list[str]:
    return storage.list_names(f"{root}/{folder}")


def count(root: str) -> int:
    """Return the number of the newest checkpoint that was committed."""
    (progress := SavedProgress(root))()
    return progress.newest
