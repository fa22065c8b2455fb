"""Shards of remote storage, kept on this machine's disk for all ranks that run here.

A shard is kept under its sha256 and appears there whole and verified, in one step: who finds it need
not look at it again. Of several ranks that want the same shard one fetches it, the others wait.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import os
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas.manifest import Shard

RANGE_BYTES = 8 << 20
PARALLEL = 2


def directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where shards are kept: on YARN the application's own folder on a node, which ends with it."""
    if on_yarn := environ.get("LOCAL_DIRS"):
        return Path(on_yarn.split(",")[0], "trainyard-shards")
    return Path(tempfile.gettempdir(), f"trainyard-shards-{getpass.getuser()}")


class ShardCache:
    """A folder of shards, of at most `limit` bytes: the one that was used longest ago makes room."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.limit = limit
        self._folder = folder

    def fetch(self, uri: str, shard: Shard) -> Path:
        """The file with the bytes of `shard`, which lies at `uri`.

        It may be removed at any time to make room; who has it open, or mapped, keeps it. Raises
        TrainyardError when what lies there is not what the manifest says.
        """
        kept = self._folder / shard.sha256
        if not kept.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._locked(shard.sha256):
                if not kept.exists():
                    self._download(uri, shard, kept)
        with suppress(FileNotFoundError):  # it has made room just now
            os.utime(kept, ns=(time.time_ns(), time.time_ns()))  # finer than the kernel's own clock of files
        return kept

    def _download(self, uri: str, shard: Shard, kept: Path) -> None:
        with self._locked("room"):
            self._make_room(shard.bytes)
            partial = kept.with_suffix(".partial")
            partial.touch()
            os.truncate(partial, shard.bytes)
        try:
            if copy(uri, shard.bytes, partial) != shard.sha256:
                raise altered(uri)
            partial.rename(kept)
        finally:
            partial.unlink(missing_ok=True)

    def _make_room(self, wanted: int) -> None:
        files: list[tuple[int, int, Path]] = []
        for found in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another rank has finished or given up this one just now
                stat = found.stat()
                files.append((stat.st_mtime_ns, stat.st_size, found))
        taken = sum(size for _, size, _ in files)
        for _, size, found in sorted(files):
            if taken + wanted <= self.limit:
                return
            if not found.suffix:
                found.unlink(missing_ok=True)
                taken -= size

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with (self._folder / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def copy(uri: str, size: int, target: Path) -> str:
    """Write the `size` bytes at `uri` to `target`; their sha256.

    The next ranges are read while one is hashed and written, and no more of them are held.
    """
    digest = hashlib.sha256()
    coming: deque[Future[bytes]] = deque()
    with target.open("r+b") as file, ThreadPoolExecutor(PARALLEL) as pool:
        for begin in range(0, size, RANGE_BYTES):
            coming.append(pool.submit(storage.read_range, uri, begin, min(RANGE_BYTES, size - begin)))
            if len(coming) > PARALLEL:
                _keep(coming.popleft().result(), file, digest)
        for last in coming:
            _keep(last.result(), file, digest)
    return digest.hexdigest()


def _keep(data: bytes, file: BinaryIO, digest: hashlib._Hash) -> None:
    digest.update(data)
    file.write(data)


def altered(uri: str) -> TrainyardError:
    """What is said of a shard that the manifest knows otherwise."""
    return TrainyardError(f"{uri} was altered: its sha256 differs from the manifest's. Export the dataset again.")
