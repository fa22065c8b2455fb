"""How each file system writes a file in one step, and what makes it durable on this machine's disks."""

from __future__ import annotations

import errno
import io
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from trainyard.errors import TrainyardError


class Method(Enum):
    """How a storage writes a file in one step."""

    LINK = "link"
    """A link to a file that is written and synchronized beside the target; a link never replaces a file."""
    RENAME = "rename"
    """A rename, which fails if the target exists unless it is to be overwritten (hdfs-native, `hooks.webhdfs`)."""
    PUT = "put"
    """An upload is visible when it is complete, and `mode="create"` makes it conditional on the server: If-None-Match
    (checked with s3fs 2026.9.0 and moto 5.2.5), ifGenerationMatch=0 (gcsfs), If-None-Match by overwrite=False
    (adlfs; both by their sources of August 2026)."""
    LOCK = "lock"
    """A lock of this process; the files exist in its memory only."""


_METHODS = {
    "hdfs": Method.RENAME,
    "viewfs": Method.RENAME,
    "s3": Method.PUT,
    "s3a": Method.PUT,
    "gs": Method.PUT,
    "gcs": Method.PUT,
    "az": Method.PUT,
    "abfs": Method.PUT,
    "abfss": Method.PUT,
    "memory": Method.LOCK,
}

OBJECT_STORES = tuple(f"{protocol}://" for protocol, method in _METHODS.items() if method is Method.PUT)
"""How the URIs of object stores begin."""


def find_method(fs: Any, uri: str) -> Method:
    """Return how a storage writes in one step.

    Raises:
        TrainyardError: It is not one of those that can.
    """
    if isinstance(fs, LocalFileSystem):
        return Method.LINK
    protocols = [fs.protocol] if isinstance(fs.protocol, str) else fs.protocol
    for protocol in protocols:
        if protocol in _METHODS:
            return _METHODS[protocol]
    raise TrainyardError(
        f"{uri!r} is on a storage ({protocols[0]}://) where of two processes that create a file at the same time both "
        f"would succeed; use a URI of one of file://, {', '.join(f'{name}://' for name in _METHODS)}."
    )


def publish_new(fs: Any, method: Method, staged: str, path: str) -> None:
    """Give a staged file its name, which must not exist. Raises FileExistsError."""
    if method is Method.RENAME:
        rename(fs, staged, path)
        return
    try:
        os.link(staged, path)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOTSUP):
            raise TrainyardError(
                f"the file system of {path!r} has no hard links, by which a file is created exclusively; use a "
                "directory on another file system, or a URI of hdfs://."
            ) from error
        raise
    sync(get_parent(path))


def publish(fs: Any, method: Method, staged: str, path: str) -> None:
    """Give a staged file its name, in place of the file that has it."""
    if method is Method.LINK:
        os.replace(staged, path)
        sync(get_parent(path))
    elif method is Method.RENAME:
        rename(fs, staged, path, overwrite=True)
    else:
        fs.mv(staged, path)


def rename(fs: Any, origin: str, path: str, **options: Any) -> None:
    """Rename a file or directory that no other process renames, on a server.

    Where a NameNode's reply is lost, as in a failover, the client requests the rename again, and gets an error for what
    it has done before: if the old name is gone and the new one exists, the rename has succeeded.
    """
    try:
        fs.mv(origin, path, **options)
    except Exception:  # each file system raises exceptions of its own
        if fs.exists(origin) or not fs.exists(path):
            raise


def make_directory(fs: Any, path: str) -> None:
    """Create a directory and its parents, which local storage has on its disk then."""
    missing: list[str] = []
    if isinstance(fs, LocalFileSystem):
        directory = path
        while not Path(directory).is_dir():
            missing.append(directory)
            directory = get_parent(directory)
    fs.makedirs(path, exist_ok=True)
    for directory in reversed(missing):
        sync(get_parent(directory))


def sync(path: str) -> None:
    """Write a local file, or the names in a local directory, to the disk, so that they survive a loss of power.

    Nothing is done for a directory that this process may not list, or on a file system without synchronization.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def get_parent(path: str) -> str:
    """Return the directory of a path."""
    return path.rsplit("/", 1)[0] or "/"


@contextmanager
def stage(fs: Any, path: str) -> Iterator[str]:
    """Give a hidden name beside `path`, which readers ignore and in whose place nothing remains afterward."""
    make_directory(fs, get_parent(path))
    staged = f"{get_parent(path)}/.{path.rsplit('/', 1)[-1]}.{uuid.uuid4().hex}"
    try:
        yield staged
    finally:
        with suppress(Exception):  # what was published is, although its hidden name may remain
            _discard(fs, staged)


def write(fs: Any, staged: str, data: bytes) -> None:
    """Write a file that is not on the disk yet; a local one is on it afterward."""
    with LocalWriter(staged) if isinstance(fs, LocalFileSystem) else fs.open(staged, "wb") as file:
        file.write(data)


class LocalWriter(io.BufferedWriter):
    """A new local file that is on the disk, as is its name, when it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__(io.FileIO(path, "w"))
        self._path = path

    def close(self) -> None:
        """Write what is buffered to the disk, and close the file; a second call does nothing."""
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        sync(get_parent(self._path))


def _discard(fs: Any, staged: str) -> None:
    if fs.exists(staged):
        fs.rm_file(staged)
