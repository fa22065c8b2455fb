"""Store the checkpoints of a script while it runs, on the side of its worker."""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol

from trainyard.errors import TrainyardError, UnavailableError, summarize
from trainyard.schemas.runs.script_checkpoint import CheckpointFile, ScriptCheckpoint
from trainyard.trainer.scripts import snapshots
from trainyard.trainer.scripts.checkpoints import THREADS, Files, ScriptCheckpoints
from trainyard.trainer.scripts.reporting import KNOWN, SNAPSHOT
from trainyard.trainer.scripts.snapshots import Entry

CHECK_SECONDS = 0.1
_KEY = "script/files"


class KeyValueStore(Protocol):
    """What workers exchange their files by: the driver's store."""

    def set(self, key: str, value: str | bytes) -> None:
        """Set the value of a key."""

    def get(self, key: str) -> bytes:
        """Return the value of a key."""

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys have values."""

    def delete_key(self, key: str) -> bool:
        """Remove a key."""


@dataclass
class Changes:
    """How the files of one worker differ from those that were restored.

    Attributes:
        written: The files that it has written.
        removed: The paths that it has removed.
    """

    written: dict[str, CheckpointFile] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)

    def to_json(self) -> str:
        """Return the changes as JSON."""
        written = {path: file.model_dump() for path, file in self.written.items()}
        return json.dumps({"written": written, "removed": sorted(self.removed)})

    @classmethod
    def from_json(cls, text: str | bytes) -> Changes:
        """Return the changes of `to_json`."""
        fields = json.loads(text)
        written = {path: CheckpointFile(**file) for path, file in fields["written"].items()}
        return cls(written, set(fields["removed"]))


def merge(restored: Files, committed: Files, changes: Sequence[Changes]) -> dict[str, CheckpointFile]:
    """Return the files of a checkpoint of several workers.

    A restored file, which each of them has, is removed when the worker that wrote it removes it, or all do.

    Args:
        restored: The files that all of them began with.
        committed: The files of the checkpoint before.
        changes: What each has changed, by rank.

    Raises:
        TrainyardError: Two workers have written different content to one path.
    """
    files = {}
    for path, file in restored.items():
        removed_by = {rank for rank, each in enumerate(changes) if path in each.removed}
        if path in committed and committed[path].rank not in removed_by and len(removed_by) < len(changes):
            files[path] = file
    writers: dict[str, int] = {}
    for rank, each in enumerate(changes):
        for path, file in each.written.items():
            if (other := writers.setdefault(path, rank)) != rank and files[path].sha256 != file.sha256:
                raise TrainyardError(
                    f"ranks {other} and {rank} have written different content to {path!r} in TRAINYARD_CHECKPOINTS; "
                    "with checkpoints_of='all ranks' put the rank into the name, or let one rank write the file."
                )
            files[path] = files[path] if other != rank else file
    return files


class CheckpointStorer:
    """Store the snapshots of one worker's script, one after the other, in a thread; a context manager.

    Where all workers store files, each writes the content of its own; rank 0 commits a checkpoint when it has the files
    of all. One that cannot be written is reported, and the script goes on.

    Args:
        checkpoints: The checkpoints of the task.
        folder: The folder of the script's checkpoints, which is restored.
        control: The folder where the script writes snapshots.
        restored: The checkpoint that was restored; None if there was none.
        number: The number of the newest checkpoint of any group, 0 if there is none.
        rank: The number of the worker.
        size: How many workers there are.
        exchange: The store of the group, if all workers store files; None if rank 0 alone does.
        get_metrics: Returns the metrics that the script has reported.

    Attributes:
        fatal: Why nothing may be stored any more: a later group has started, or workers contradict each other.
    """

    def __init__(
        self,
        checkpoints: ScriptCheckpoints,
        folder: Path,
        control: Path,
        restored: ScriptCheckpoint | None,
        number: int,
        rank: int = 0,
        size: int = 1,
        exchange: KeyValueStore | None = None,
        get_metrics: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._checkpoints, self._folder = checkpoints, folder
        self._known, self._snapshot = control / KNOWN, control / SNAPSHOT
        self._restored: Files = restored.files if restored else {}
        self._files = dict(self._restored)
        self._committed, self._metrics = dict(self._restored), restored.metrics if restored else {}
        self._before, self._call, self._rank, self._size = number, 0, rank, size
        self._exchange, self._get_metrics = exchange, get_metrics
        self._ending, self._take_last, self._deadline = threading.Event(), False, math.inf
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self.fatal: TrainyardError | None = None
        snapshots.write_known(self._known, {n: snapshots.read_state(path) for n, path in snapshots.list_files(folder)})
        self._thread.start()

    def __enter__(self) -> CheckpointStorer:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()

    def finish(self, take_last: bool, seconds: float = math.inf) -> None:
        """Store what the script has left when it has ended.

        Args:
            take_last: Whether its files are complete, so that they are stored; if not, only a snapshot that it has
                written before is.
            seconds: How long to wait for the storage, and for other workers.

        Raises:
            UnavailableError: The last files cannot be stored.
            TrainyardError: See `fatal`.
        """
        self._take_last, self._deadline = take_last, time.monotonic() + seconds
        self._ending.set()
        self._thread.join(None if seconds == math.inf else seconds)
        if self.fatal:
            raise self.fatal
        error = TimeoutError(f"no answer within {seconds:g} s") if self._thread.is_alive() else self._error
        if take_last and error:
            raise UnavailableError(f"the last checkpoint of the script cannot be stored: {summarize(error)}") from error

    def _run(self) -> None:
        while not self._ending.wait(CHECK_SECONDS):
            self._store_if_called()
        self._store_if_called()
        self._error = None
        if self._take_last:
            self._try(self._store_last)
        if self._exchange and self._rank:
            changes = self._find_changes().to_json() if self._take_last and not self._error else ""
            self._try(lambda: self._publish("end", changes))

    def _try(self, store: Callable[[], None]) -> None:
        """Store files; an error is reported."""
        try:
            if not self.fatal:
                store()
        except Exception as error:  # each file system raises exceptions of its own
            self._error = error
            if isinstance(error, TrainyardError) and not isinstance(error, UnavailableError):
                self.fatal = error
            print(f"a checkpoint of the script cannot be stored: {summarize(error)}", flush=True)

    def _store_last(self) -> None:
        """Store the files of a script that has ended, if they have changed."""
        self._call += 1
        known = snapshots.read_known(self._known)
        if snapshots.has_changed(self._folder, known, warn=partial(print, flush=True)):
            snapshots.take(self._folder, known, self._snapshot, warn=lambda _: None)
            self._upload()
        self._commit("end")

    def _store_if_called(self) -> None:
        if self._snapshot.exists():
            self._try(self._store_snapshot)
            shutil.rmtree(self._snapshot, ignore_errors=True)  # so that the script takes the next one

    def _store_snapshot(self) -> None:
        first, self._call = self._call + 1, snapshots.read_call(self._snapshot)
        for call in range(first, self._call):  # they have raised an exception in the script
            self._publish(str(call), "")
        try:
            self._upload()
        except Exception:
            self._publish(str(self._call), "")
            raise
        self._commit(str(self._call))

    @property
    def _number(self) -> int:
        """The number of the checkpoint of the current call."""
        return self._before + self._call

    def _upload(self) -> None:
        """Write the content of the files that have changed, and note what the next snapshot is compared with."""
        entries = snapshots.read(self._snapshot)

        def upload(item: tuple[str, Entry]) -> CheckpointFile:
            path, entry = item
            if entry.copy is None:
                return self._files[path]
            return self._checkpoints.upload(self._snapshot / entry.copy, self._number, self._rank, self._files)

        with ThreadPoolExecutor(THREADS) as pool:
            self._files = dict(zip(entries, pool.map(upload, entries.items()), strict=True))
        snapshots.write_known(self._known, {path: entry.state for path, entry in entries.items()})

    def _commit(self, step: str) -> None:
        """Write the index of a checkpoint, or let rank 0 do so. There is none without files."""
        own = self._find_changes()
        if self._exchange and self._rank:
            if step != "end":
                self._publish(step, own.to_json())
            return
        changes = [own, *(self._receive(step, rank) for rank in range(1, self._size if self._exchange else 1))]
        if None in changes:
            return
        files = merge(self._restored, self._committed, [each for each in changes if each])
        metrics = self._get_metrics()
        if files and (files, metrics) != (self._committed, self._metrics):
            needed = chain(self._restored.values(), *(each.written.values() for each in changes if each))
            self._checkpoints.commit(self._number, self._size, files, metrics, needed)
            self._committed, self._metrics = files, dict(metrics)

    def _find_changes(self) -> Changes:
        written = {path: file for path, file in self._files.items() if self._restored.get(path) != file}
        return Changes(written, set(self._restored) - set(self._files))

    def _publish(self, step: str, changes: str) -> None:
        """Let rank 0 have the changes of a step; "" if they could not be stored."""
        if self._exchange and self._rank:
            self._exchange.set(f"{_KEY}/{step}/{self._rank}", changes)

    def _receive(self, step: str, rank: int) -> Changes | None:
        """Return what another worker has changed up to a step, or until it ended; None if it has failed before."""
        assert self._exchange
        at, end = f"{_KEY}/{step}/{rank}", f"{_KEY}/end/{rank}"
        while time.monotonic() < self._deadline:
            for key in (at, end):
                if self._exchange.check([key]):
                    text = self._exchange.get(key)
                    if key != end:
                        self._exchange.delete_key(key)
                    return Changes.from_json(text) if text else None
            time.sleep(CHECK_SECONDS)
        return None
