"""A cache of remote shards on this machine's disk, shared by all workers that run here.

A shard is stored under its sha256, and appears there complete and verified, in one step. When several workers request
the same shard, one downloads it and the others wait. A file that changed since it was verified is verified again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import mmap
import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.files.retries import retry
from trainyard.schemas.datasets.manifest import RecordBatch, Shard
from trainyard.trainer.folders import create_private

FOLDER = "shards"
"""The kind of the folder, for `name_folder`."""
RANGE_BYTES = 8 << 20
PARALLEL_READS = 2
WAIT_SECONDS = 0.05
"""The time between two checks of a download by another worker."""
GIB = 2**30
_PARTIAL = ".partial"


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class CacheFullError(TrainyardError):
    """There is no room for another shard: in the limit, by those that workers have mapped, or on the disk."""


class ShardCache:
    """A folder of shards; the least recently used ones are removed when it is full.

    A shard that a worker has mapped holds a shared lock until the last view of it is gone. It is not removed until
    then, because its space would stay in use. So the folder, with what is mapped from it, never exceeds the limit.

    Args:
        folder: The folder, which may not exist yet.
        limit: The maximum size in bytes.

    Raises:
        TrainyardError: `fetch` and `map` raise it if other users own the folder or can write to it.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.limit = limit
        self._folder = folder
        self._checked = False

    def map(self, uri: str, shard: Shard) -> mmap.mmap:
        """Return the content of `shard`, which is stored at `uri`; its file stays until the last view of it is gone.

        Raises:
            CacheFullError: There is no room for it.
            TrainyardError: The checksum of the remote file differs from the manifest's.
        """
        while True:
            with suppress(FileNotFoundError), self.fetch(uri, shard).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)  # held by the map when the file is closed
                if os.fstat(file.fileno()).st_nlink:  # not removed since it was opened
                    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def fetch(self, uri: str, shard: Shard) -> Path:
        """Return the local file of `shard`, which is stored at `uri`.

        The file may be removed at any time to make room, unless it is mapped by `map`.

        Raises:
            CacheFullError: There is no room for it.
            TrainyardError: The checksum of the remote file differs from the manifest's.
        """
        if not self._checked:
            create_private(self._folder, "shards of remote storage")
            self._checked = True
        file = self._folder / shard.sha256
        if not self._is_verified(file, shard):
            try:
                with self._lock(shard.sha256):
                    if not self._is_verified(file, shard) and not self._verify(file, shard):
                        self._download(uri, shard, file)
            except OSError as error:
                if error.errno not in _NO_SPACE:
                    raise
                raise CacheFullError(
                    f"{os.strerror(error.errno)} in {self._folder} for {shard.path} ({shard.bytes / GIB:.3g} GiB)"
                ) from error
        with suppress(FileNotFoundError):  # removed by another worker
            os.utime(file, ns=(time.time_ns(), file.stat().st_mtime_ns))  # the time of access orders the removal
        return file

    def _is_verified(self, file: Path, shard: Shard) -> bool:
        """Return whether the file has not changed since its sha256 was computed."""
        try:
            identity = _identify(file)
            return bool(identity["bytes"] == shard.bytes and json.loads(_record_path(file).read_text()) == identity)
        except (FileNotFoundError, ValueError):
            return False

    def _verify(self, file: Path, shard: Shard) -> bool:
        """Compute the sha256 of a file that was not recorded as verified. If it differs, remove the file."""
        with suppress(FileNotFoundError):
            identity = _identify(file)
            with file.open("rb") as content:
                valid = hashlib.file_digest(content, "sha256").hexdigest() == shard.sha256
            if valid:
                _record_path(file).write_text(json.dumps(identity))
                return True
            file.unlink()
        return False

    def _download(self, uri: str, shard: Shard, file: Path) -> None:
        partial = file.with_suffix(_PARTIAL)
        partial.unlink(missing_ok=True)  # of a worker that was killed
        try:
            while not self._reserve(shard, partial):
                time.sleep(WAIT_SECONDS)
            if download(uri, shard.bytes, partial) != shard.sha256:
                raise checksum_error(uri)
            _record_path(file).write_text(json.dumps(_identify(partial)))
            partial.rename(file)
        finally:
            partial.unlink(missing_ok=True)

    def _reserve(self, shard: Shard, partial: Path) -> bool:
        """Make room for a shard, and allocate its file. Return False if other downloads must end first."""
        with self._lock("room"):
            shards, downloading = self._list_files()
            used, mapped = downloading + sum(bytes for _, bytes, _ in shards), 0
            for _, bytes, file in sorted(shards):
                if used + shard.bytes <= self.limit:
                    break
                if _remove_if_unmapped(file):
                    used -= bytes
                else:
                    mapped += bytes
            if used + shard.bytes <= self.limit:
                with partial.open("wb") as empty:
                    _allocate(empty.fileno(), shard.bytes)
                return True
            if downloading:
                return False
            raise CacheFullError(
                f"the workers of this machine have {mapped / GIB:.3g} GiB of shards in use, so there is no room for "
                f"{shard.path} ({shard.bytes / GIB:.3g} GiB) in {self._folder}; cache_gb is {self.limit / GIB:.3g}: "
                f"set it to {(used + shard.bytes) / GIB:.3g} or more."
            )

    def _list_files(self) -> tuple[list[tuple[int, int, Path]], int]:
        """Return the time of access, size and path of each shard, and the bytes allocated by downloads in progress."""
        shards: list[tuple[int, int, Path]] = []
        downloading = 0
        for file in self._folder.iterdir():
            with suppress(FileNotFoundError):  # renamed or removed by another worker
                status = file.stat()
                if not file.suffix:
                    shards.append((status.st_atime_ns, status.st_size, file))
                elif file.suffix == _PARTIAL and not self._remove_if_abandoned(file):
                    downloading += status.st_size
        return shards, downloading

    def _remove_if_abandoned(self, partial: Path) -> bool:
        """Remove a partial file if no worker is downloading it, and return whether it was removed."""
        with suppress(BlockingIOError), self._lock(partial.stem, wait=False):
            partial.unlink(missing_ok=True)
            return True
        return False

    @contextmanager
    def _lock(self, name: str, wait: bool = True) -> Iterator[None]:
        """Hold an exclusive lock. Raises BlockingIOError if another worker holds it, unless `wait`.

        It is released explicitly: a process that was forked meanwhile has the file open too, so closing it here would
        leave the lock with that process.
        """
        with (self._folder / f"{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)


def _remove_if_unmapped(file: Path) -> bool:
    """Remove a shard, unless a worker has mapped it, and return whether it is gone."""
    try:
        with file.open("rb") as content:
            fcntl.flock(content, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _record_path(file).unlink(missing_ok=True)
            file.unlink(missing_ok=True)
    except FileNotFoundError:
        pass
    except BlockingIOError:
        return False
    return True


def _allocate(descriptor: int, size: int) -> None:
    """Give an empty file its size, and its space on the disk where the system can."""
    if hasattr(os, "posix_fallocate"):  # not on macOS
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.truncate(descriptor, size)


def _record_path(file: Path) -> Path:
    """Return the path of the record that a shard was verified."""
    return file.with_suffix(".verified")


def _identify(file: Path) -> dict[str, Any]:
    """Return what changes with the content of a file. After a restart of the machine, pages may not be on its disk."""
    status = file.stat()
    return {
        "inode": status.st_ino,
        "bytes": status.st_size,
        "modified_ns": status.st_mtime_ns,
        "boot": _identify_boot(),
    }


def _identify_boot() -> str:
    """Return an identifier that changes when the machine restarts."""
    linux = Path("/proc/sys/kernel/random/boot_id")
    if linux.exists():
        return linux.read_text().strip()
    import psutil

    return str(psutil.boot_time())


def download(uri: str, size: int, target: Path) -> str:
    """Write the `size` bytes at `uri` to `target`, and return their sha256.

    The next ranges are read while one is hashed and written; no more of them are in memory.
    """
    digest = hashlib.sha256()
    ranges: deque[Future[bytes]] = deque()
    with target.open("r+b") as file, ThreadPoolExecutor(PARALLEL_READS) as pool:
        for begin in range(0, size, RANGE_BYTES):
            read = partial(storage.read_range, uri, begin, min(RANGE_BYTES, size - begin))
            ranges.append(pool.submit(retry, f"read {uri}", read))
            if len(ranges) > PARALLEL_READS:
                _append(ranges.popleft().result(), file, digest)
        for data in ranges:
            _append(data.result(), file, digest)
    return digest.hexdigest()


def checksum_error(uri: str, batch: RecordBatch | None = None) -> TrainyardError:
    """Return the error for a shard, or one of its record batches, whose checksum differs from the manifest's."""
    part = f"the checksum of bytes {batch.offset:,} to {batch.offset + batch.length:,}" if batch else "its sha256"
    return TrainyardError(f"{uri} was altered: {part} differs from the manifest's. Export the dataset again.")


def _append(data: bytes, file: BinaryIO, digest: hashlib._Hash) -> None:
    digest.update(data)
    file.write(data)
