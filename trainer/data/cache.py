"""A cache of remote shards on this machine's disk, shared by all workers that run here.

A shard is stored under its sha256, and appears there complete and verified, in one step. When several workers request
the same shard, one downloads it and the others wait.
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
PARALLEL_READS = 2


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for shards: on YARN a folder of the application, which YARN removes at its end."""
    if yarn_folders := environ.get("LOCAL_DIRS"):
        return Path(yarn_folders.split(",")[0], "trainyard-shards")
    return Path(tempfile.gettempdir(), f"trainyard-shards-{getpass.getuser()}")


class ShardCache:
    """A folder of shards; the least recently used ones are removed when it is full.

    Args:
        folder: The folder, which may not exist yet.
        limit: The maximum size in bytes.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.limit = limit
        self._folder = folder

    def fetch(self, uri: str, shard: Shard) -> Path:
        """Return the local file of `shard`, which is stored at `uri`.

        The file may be removed at any time to make room; a process that has it open or mapped can still read it.

        Raises:
            TrainyardError: The checksum of the remote file differs from the manifest's.
        """
        file = self._folder / shard.sha256
        if not file.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._lock(shard.sha256):
                if not file.exists():
                    self._download(uri, shard, file)
        with suppress(FileNotFoundError):  # removed by another worker
            os.utime(file, ns=(time.time_ns(), time.time_ns()))  # finer than the kernel's own file times
        return file

    def _download(self, uri: str, shard: Shard, file: Path) -> None:
        with self._lock("room"):
            self._make_room(shard.bytes)
            partial = file.with_suffix(".partial")
            partial.touch()
            os.truncate(partial, shard.bytes)
        try:
            if download(uri, shard.bytes, partial) != shard.sha256:
                raise checksum_error(uri)
            partial.rename(file)
        finally:
            partial.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        files: list[tuple[int, int, Path]] = []
        for file in self._folder.iterdir():
            with suppress(FileNotFoundError):  # renamed or removed by another worker
                stat = file.stat()
                files.append((stat.st_mtime_ns, stat.st_size, file))
        used = sum(bytes for _, bytes, _ in files)
        for _, bytes, file in sorted(files):
            if used + size <= self.limit:
                return
            if not file.suffix:
                file.unlink(missing_ok=True)
                used -= bytes

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        with (self._folder / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def download(uri: str, size: int, target: Path) -> str:
    """Write the `size` bytes at `uri` to `target`, and return their sha256.

    The next ranges are read while one is hashed and written; no more of them are in memory.
    """
    digest = hashlib.sha256()
    ranges: deque[Future[bytes]] = deque()
    with target.open("r+b") as file, ThreadPoolExecutor(PARALLEL_READS) as pool:
        for begin in range(0, size, RANGE_BYTES):
            ranges.append(pool.submit(storage.read_range, uri, begin, min(RANGE_BYTES, size - begin)))
            if len(ranges) > PARALLEL_READS:
                _append(ranges.popleft().result(), file, digest)
        for data in ranges:
            _append(data.result(), file, digest)
    return digest.hexdigest()


def checksum_error(uri: str) -> TrainyardError:
    """Return the error for a shard whose checksum differs from the manifest's."""
    return TrainyardError(f"{uri} was altered: its sha256 differs from the manifest's. Export the dataset again.")


def _append(data: bytes, file: BinaryIO, digest: hashlib._Hash) -> None:
    digest.update(data)
    file.write(data)
