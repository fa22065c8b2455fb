"""Checkpoints of a script on the storage: the files of a folder, of which those that have changed are written."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from trainyard.errors import StorageError, TrainyardError, UnavailableError, summarize
from trainyard.files import storage, uris
from trainyard.files.retries import retry
from trainyard.schemas.runs import checkpoint as directories
from trainyard.schemas.runs.script_checkpoint import (
    CONTENTS,
    CheckpointFile,
    ScriptCheckpoint,
    content_uri,
    find_unused,
    index_uri,
    name_content,
)

KEEP = 2
"""How many checkpoints are kept. A group that restarts reads the newest one that it finds, while the group before may
still write one more."""
THREADS = 8
_CHUNK = 8 << 20

Files = Mapping[str, CheckpointFile]
"""Path of a file in the folder -> the file on the storage."""


class ScriptCheckpoints:
    """The checkpoints of one task, for one worker group.

    Args:
        root: Their directory.
        group: The number of the group, which `claim` returns to rank 0.
    """

    def __init__(self, root: str, group: int) -> None:
        self._root, self.group = root, group

    def find_newest(self, folder: Path, on_progress: Callable[[], None] = lambda: None) -> ScriptCheckpoint | None:
        """Restore the newest checkpoint that is complete into a folder, and return it; None if there is none.

        Args:
            folder: An empty folder.
            on_progress: Called now and then while files are read.

        Raises:
            UnavailableError: The storage does not answer.
        """
        for _, _, uri in retry(f"read {self._root}", partial(directories.list_checkpoints, self._root)):
            try:
                index = self.read(uri)
                self.restore(index, folder, on_progress)
            except UnavailableError:
                raise
            except FileNotFoundError:
                continue  # it was not committed
            except TrainyardError as error:
                print(f"skipping checkpoint {uri}: {error}", flush=True)
            else:
                return index
        return None

    def read(self, uri: str) -> ScriptCheckpoint:
        """Return the index in the directory of a checkpoint. Raises FileNotFoundError if it was not committed."""
        return retry(f"read {uri}", partial(ScriptCheckpoint.load, uris.join(uri, directories.INDEX)))

    def read_number(self, number: int, group: int) -> ScriptCheckpoint:
        """Return the index of a checkpoint of a group."""
        return self.read(directories.checkpoint_uri(self._root, number, group))

    def restore(self, index: ScriptCheckpoint, folder: Path, on_progress: Callable[[], None] = lambda: None) -> None:
        """Write the files of a checkpoint into a folder, in place of what it has: all of them, or none.

        Args:
            index: The checkpoint.
            folder: The folder.
            on_progress: Called now and then while files are read.

        Raises:
            TrainyardError: A file is missing or was altered.
        """
        staged = folder.with_name(f".{folder.name}")

        def write(item: tuple[str, CheckpointFile]) -> None:
            path = staged / item[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            self._download(item[1], path, on_progress)

        for path in (folder, staged):
            shutil.rmtree(path, ignore_errors=True)
        staged.mkdir(parents=True)
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                for _ in pool.map(write, index.files.items()):
                    pass
            staged.rename(folder)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def upload(self, file: Path, number: int, rank: int, stored: Files) -> CheckpointFile:
        """Write the content of a file of a worker, unless one of the `stored` files has it, for checkpoint `number`.

        Raises:
            UnavailableError: The storage does not answer.
        """
        size, sha256 = storage.checksum(str(file))
        modified_ns = file.stat().st_mtime_ns
        if same := next((each for each in stored.values() if each.sha256 == sha256), None):
            return same.model_copy(update={"modified_ns": modified_ns, "rank": rank})
        name = name_content(self.group, number, sha256)
        uri = content_uri(self._root, name)
        retry(f"write {uri}", lambda: storage.upload(uri, file))
        if (written := retry(f"read {uri}", lambda: storage.size(uri))) != size:
            raise StorageError(f"{uri} has {written:,} of {size:,} bytes")
        return CheckpointFile(bytes=size, sha256=sha256, modified_ns=modified_ns, content=name, rank=rank)

    def commit(
        self,
        number: int,
        workers: int,
        files: Files,
        metrics: Mapping[str, float],
        needed: Iterable[CheckpointFile] = (),
    ) -> ScriptCheckpoint:
        """Write the index of a checkpoint, which makes it one, and remove what is older.

        Args:
            number: Its number.
            workers: How many workers the group has.
            files: Its files.
            metrics: The last value of each metric.
            needed: Other files whose content stays: workers may still restore them, or use them for later checkpoints.

        Raises:
            StorageError: The content of a file is missing.
            TrainyardError: A later group has started.
            UnavailableError: The storage does not answer.
        """
        index = ScriptCheckpoint(
            number=number, group=self.group, workers=workers, saved_at=time.time(), metrics=dict(metrics),
            files=dict(files),
        )  # fmt: skip
        newest = retry(f"read {self._root}", partial(directories.read_newest_group, self._root))
        if newest > self.group:
            raise TrainyardError(f"worker group {newest} has started for this task, so group {self.group} ends.")
        contents = uris.join(self._root, CONTENTS)
        names = retry(f"read {contents}", lambda: storage.list_names(contents))
        if missing := {file.content for file in files.values()}.difference(names):
            raise StorageError(f"checkpoint {number} needs {min(missing)}, which {contents} has no more")
        uri = index_uri(self._root, number, self.group)
        retry(f"write {uri}", lambda: storage.replace(uri, index.to_json().encode()))
        try:
            self._prune(number, set(names) - {file.content for file in needed})
        except Exception as error:  # the checkpoint is committed; the next one removes what is left
            print(f"old checkpoints in {self._root} cannot be removed: {summarize(error)}", flush=True)
        return index

    def _prune(self, number: int, contents: Iterable[str]) -> None:
        """Remove older checkpoints, those that were not committed, and those of the contents that none has."""
        kept: list[ScriptCheckpoint] = []
        for group, _, uri in directories.list_checkpoints(self._root):
            if group > self.group:
                continue
            if len(kept) < KEEP:
                try:
                    kept.append(ScriptCheckpoint.load(uris.join(uri, directories.INDEX)))
                    continue
                except UnavailableError:
                    raise
                except (FileNotFoundError, TrainyardError):  # not committed, or damaged
                    pass
            storage.remove(uris.join(uri, directories.INDEX))
            storage.remove(uri)
        for name in find_unused(contents, kept, self.group, number):
            storage.remove(content_uri(self._root, name))

    def _download(self, file: CheckpointFile, path: Path, on_progress: Callable[[], None]) -> None:
        uri = content_uri(self._root, file.content)

        def read() -> None:
            with storage.open_input(uri) as source, path.open("wb") as target:
                left = file.bytes + 1  # one byte more shows that it is longer
                while left and (chunk := source.read(min(left, _CHUNK))):
                    target.write(chunk)
                    left -= len(chunk)
                    on_progress()

        try:
            retry(f"read {uri}", read)
        except FileNotFoundError:
            raise TrainyardError(f"{uri} is missing") from None
        length, sha256 = storage.checksum(str(path))
        if (length, sha256) != (file.bytes, file.sha256):
            raise TrainyardError(f"{uri} was altered: its size or checksum differs")
        os.utime(path, ns=(file.modified_ns, file.modified_ns))


def claim(root: str) -> int:
    """Return a number for a worker group that starts: higher than that of any group before."""
    return retry(f"write to {root}", lambda: directories.claim_group(root))


def find_number(root: str) -> int:
    """Return the highest number of a checkpoint, 0 if there is none."""
    found = retry(f"read {root}", partial(directories.list_checkpoints, root))
    return max((each.updates for each in found), default=0)


class SavedProgress:
    """The progress of a script's checkpoints: what a group stores counts if it differs from what it began with.

    Args:
        root: The directory of the task's checkpoints.

    Attributes:
        newest: The number of the newest checkpoint that was committed, 0 if there is none.
    """

    def __init__(self, root: str) -> None:
        self._checkpoints, self._root = ScriptCheckpoints(root, 0), root
        self._sums: dict[str, str] = {}
        self._number = self.newest = 0

    def __call__(self) -> int:
        """Return the number of the newest checkpoint; if it has the paths and contents of the last call, the same."""
        for _, number, uri in retry(f"read {self._root}", partial(directories.list_checkpoints, self._root)):
            try:
                index = self._checkpoints.read(uri)
            except UnavailableError:
                raise
            except (FileNotFoundError, TrainyardError):  # not committed, or damaged
                continue
            self.newest = number
            sums = {path: file.sha256 for path, file in index.files.items()}
            if sums != self._sums:
                self._number, self._sums = number, sums
            break
        return self._number
