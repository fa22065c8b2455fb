"""Files on fsspec file systems, with atomic operations.

`create` writes a file that must not exist: of several concurrent callers exactly one succeeds.
`replace` replaces a file's content in one step: a reader sees the old bytes or the new ones, never a mixture.
`move` renames a directory in one step.

How each storage does this is in `atomic`; a storage that cannot is refused by name.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from glob import has_magic
from pathlib import Path
from typing import IO, Any, NamedTuple

from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem

from trainyard.errors import TrainyardError
from trainyard.files import atomic, uris
from trainyard.files.atomic import Method
from trainyard.files.filesystems import locate

_CHUNK = 8 << 20
_MEMORY = threading.Lock()
_MODIFIED = ("mtime", "modification_time", "ETag", "etag", "LastModified", "last_modified", "updated")
"""The names that file systems give to a modification time, or to a hash of the content."""
_TIMES = ("mtime", "modification_time", "LastModified", "last_modified", "updated", "created")
"""The names that file systems give to a modification time. A number "modification_time" is in milliseconds (HDFS)."""


class StoredFile(NamedTuple):
    """A file below a directory.

    Attributes:
        path: The path relative to the directory.
        bytes: The size.
        modified: When it was written, in seconds since the epoch; None if the file system has no such time.
    """

    path: str
    bytes: int
    modified: float | None


class ShortReadError(OSError):
    """A file has fewer bytes than were requested."""


def local_path(uri: str) -> Path | None:
    """Return the path of a file on this machine, or None for a URI of another storage."""
    fs, path = locate(uri)
    return Path(path) if isinstance(fs, LocalFileSystem) else None


def exists(uri: str) -> bool:
    """Return whether there is a file or directory at `uri`."""
    fs, path = locate(uri)
    return bool(fs.exists(path))


def modified(uri: str) -> float | None:
    """Return when a file was written, in seconds since the epoch; None if there is none, or if that is not known."""
    fs, path = locate(uri)
    try:
        return _modified_at(fs.info(path))
    except FileNotFoundError:
        return None


def list_names(uri: str) -> list[str]:
    """Return the sorted names in the directory `uri`; empty if it does not exist. Other errors are raised."""
    return _sort_names(_list_entries(*locate(uri)))


def list_files(uri: str) -> list[tuple[str, int, str]]:
    """Return (path, bytes, modification time) of each file at or below `uri`, sorted.

    Args:
        uri: A file, a directory, or a pattern with wildcards.

    Raises:
        ValueError: The file system has no modification times.
    """
    fs, path = locate(uri)
    files: dict[str, Any] = {}
    for top in fs.glob(path) if has_magic(path) else [path]:
        files |= fs.find(top, detail=True)
    return sorted((name, int(info["size"]), _modification_time(name, info)) for name, info in files.items())


def find_files(directory: str) -> list[StoredFile]:
    """Return the files at any depth below a directory, sorted by path; none if it does not exist.

    A directory that cannot be listed is an error, unlike with fsspec's own `find`.
    """
    fs, path = locate(directory)
    top = path.rstrip("/") + "/"
    # One request to an object store lists all depths.
    entries = fs.find(path, detail=True).values() if isinstance(fs, AsyncFileSystem) else _walk(fs, path)
    files = ((info["name"].partition(top)[2], info) for info in entries)
    return sorted(StoredFile(name, int(info["size"] or 0), _modified_at(info)) for name, info in files if name)


def list_directories(directory: str) -> list[str]:
    """Return the sorted names of the directories in one; empty if it does not exist. Other errors are raised."""
    return _sort_names(info for info in _list_entries(*locate(directory)) if info["type"] == "directory")


def find_directories(top: str, marker: str, without: Collection[str] = ()) -> Iterator[str]:
    """Yield the URIs of the directories at and below `top` that have a file `marker`, without a look inside them.

    Args:
        top: The URI of the directory to begin at.
        marker: The name of the file.
        without: The names of directories in `top` to leave out.
    """
    if exists(uris.join(top, marker)):
        yield top
        return
    for name in list_directories(top):
        if not name.startswith(".") and name not in without:
            yield from find_directories(uris.join(top, name), marker)


def read(uri: str, limit: int | None = None) -> bytes:
    """Return the content of a file.

    Args:
        uri: The file.
        limit: How many bytes it may have, where somebody else may have written it; None reads any file.

    Raises:
        TrainyardError: It has more.
    """
    fs, path = locate(uri)
    if limit is None:
        return bytes(fs.cat_file(path))
    data = bytes(fs.cat_file(path, start=0, end=limit + 1))
    check_size(uri, len(data), limit)
    return data


def check_size(uri: str, size: int, limit: int) -> None:
    """Raise TrainyardError if a file has more than `limit` bytes."""
    if size > limit:
        raise TrainyardError(
            f"{uri} has more than {limit >> 20 or 1} MiB, the most that is read of such a file. Trainyard has not "
            "written it; remove it."
        )


def read_range(uri: str, begin: int, length: int) -> bytes:
    """Return `length` bytes from offset `begin`. Raises ShortReadError if the file has fewer."""
    fs, path = locate(uri)
    data = bytes(fs.cat_file(path, start=begin, end=begin + length))
    if len(data) != length:
        raise ShortReadError(f"{uri} has {len(data)} of {length} bytes from byte {begin} on")
    return data


def size(uri: str) -> int:
    """Return the size of a file in bytes. Raises FileNotFoundError."""
    fs, path = locate(uri)
    return int(fs.size(path))


def checksum(uri: str, on_chunk: Callable[[], None] = lambda: None) -> tuple[int, str]:
    """Return the size of a file in bytes and its sha256. Raises FileNotFoundError.

    Args:
        uri: The file, which is read in chunks.
        on_chunk: Called after each chunk.
    """
    digest, length = hashlib.sha256(), 0
    with open_input(uri) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            length += len(chunk)
            on_chunk()
    return length, digest.hexdigest()


def open_input(uri: str) -> IO[bytes]:
    """Open a file for reading."""
    fs, path = locate(uri)
    return fs.open(path, "rb")  # type: ignore[no-any-return]


def open_output(uri: str) -> IO[bytes]:
    """Open a new file for writing, and create its directories. A local file is on the disk when it is closed."""
    fs, path = locate(uri)
    atomic.make_directory(fs, atomic.get_parent(path))
    return atomic.LocalWriter(path) if isinstance(fs, LocalFileSystem) else fs.open(path, "wb")


def create(uri: str, data: bytes) -> None:
    """Write `data` to `uri` in one step.

    Raises:
        FileExistsError: There is a file already, or another caller wrote it first.
        TrainyardError: The storage cannot create a file exclusively.
    """
    fs, path = locate(uri)
    match atomic.find_method(fs, uri):
        case Method.PUT:
            fs.pipe_file(path, data, mode="create")
        case Method.LOCK:
            with _MEMORY:
                fs.pipe_file(path, data, mode="create")
        case method:
            with atomic.stage(fs, path) as staged:
                atomic.write(fs, staged, data)
                atomic.publish_new(fs, method, staged, path)


def upload(uri: str, file: Path) -> None:
    """Copy a file of this machine to `uri` in one step. A file that exists there already stays.

    Raises:
        TrainyardError: The storage cannot create a file exclusively.
    """
    fs, path = locate(uri)
    method = atomic.find_method(fs, uri)
    if method in (Method.PUT, Method.LOCK):
        with suppress(FileExistsError):
            if method is Method.PUT:
                fs.put_file(str(file), path, mode="create")
            else:
                create(uri, file.read_bytes())
        return
    with suppress(FileExistsError), atomic.stage(fs, path) as staged:
        fs.put_file(str(file), staged)
        if method is Method.LINK:
            atomic.sync(staged)
        if not fs.exists(path):
            atomic.publish_new(fs, method, staged, path)


def replace(uri: str, data: bytes) -> None:
    """Write `data` to `uri` in one step, replacing what was there.

    Raises:
        TrainyardError: The storage cannot replace a file in one step.
    """
    fs, path = locate(uri)
    method = atomic.find_method(fs, uri)
    if method in (Method.PUT, Method.LOCK):
        fs.pipe_file(path, data)
        return
    with atomic.stage(fs, path) as staged:
        atomic.write(fs, staged, data)
        atomic.publish(fs, method, staged, path)


def copy(source: str, target: str) -> None:
    """Copy a file in chunks, replacing `target` in one step; of a directory, each file.

    Raises:
        TrainyardError: The storage of `target` cannot replace a file in one step.
    """
    fs, origin = locate(source)
    if fs.isdir(origin):
        for name in list_names(source):
            copy(f"{source.rstrip('/')}/{name}", f"{target.rstrip('/')}/{name}")
        return
    fs, path = locate(target)
    method = atomic.find_method(fs, target)
    with atomic.stage(fs, path) as staged:
        with open_input(source) as reader, fs.open(staged, "wb") as writer:
            shutil.copyfileobj(reader, writer, _CHUNK)
        if method is Method.LINK:
            atomic.sync(staged)
        atomic.publish(fs, method, staged, path)


def renames_directories(uri: str) -> bool:
    """Return whether the storage of `uri` renames a directory in one step, as `move` does; object stores do not.

    Raises:
        TrainyardError: The storage cannot even write a file in one step.
    """
    fs, _ = locate(uri)
    return atomic.find_method(fs, uri) in (Method.LINK, Method.RENAME)


def move(source: str, target: str) -> None:
    """Rename a directory in one step.

    Raises:
        FileExistsError: `target` exists.
        TrainyardError: The storage cannot rename a directory in one step.
    """
    fs, origin = locate(source)
    _, path = locate(target)
    if not renames_directories(target):
        raise TrainyardError(
            f"{target!r} is on a storage that copies a directory file by file, so readers would see a part of it; use "
            "a URI of file:// or hdfs://."
        )
    if fs.exists(path):
        raise FileExistsError(f"{target} exists already")
    atomic.make_directory(fs, atomic.get_parent(path))
    if not isinstance(fs, LocalFileSystem):
        atomic.rename(fs, origin, path)
        return
    try:
        os.rename(origin, path)
    except OSError as error:
        if error.errno == errno.ENOTEMPTY:  # created since it was checked
            raise FileExistsError(f"{target} exists already") from None
        raise
    atomic.sync(atomic.get_parent(path))
    atomic.sync(atomic.get_parent(origin))


def remove(uri: str) -> None:
    """Remove a file or a directory, if it exists."""
    fs, path = locate(uri)
    if fs.exists(path):
        fs.rm(path, recursive=True)


def remove_empty(uri: str) -> None:
    """Remove an empty directory, if it exists. Raises FileExistsError if it has files."""
    fs, path = locate(uri)
    try:
        if fs.exists(path):
            fs.rmdir(path)
    except Exception as error:  # each file system raises exceptions of its own
        if list_names(uri):
            raise FileExistsError(f"{uri} is not empty") from error
        if fs.exists(path):
            raise


def _modification_time(name: str, info: Mapping[str, Any]) -> str:
    for key in _MODIFIED:
        if key in info:
            return str(info[key])
    raise ValueError(f"{name} has no modification time: {', '.join(info)}")


def _walk(fs: Any, path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of files at any depth."""
    pending = [path]
    while pending:
        for info in _list_entries(fs, pending.pop()):
            if info["type"] == "directory":
                pending.append(info["name"])
            else:
                yield info


def _list_entries(fs: Any, path: str) -> list[Mapping[str, Any]]:
    """Return the entries of a directory; none if it does not exist, or is a file."""
    try:
        entries = fs.ls(path, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [info for info in entries if info["name"].rstrip("/") != path.rstrip("/")]


def _sort_names(entries: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(info["name"].rstrip("/").rsplit("/", 1)[-1] for info in entries)


def _modified_at(info: Mapping[str, Any]) -> float | None:
    """Return a modification time in seconds since the epoch, None if there is none that is known."""
    for key in _TIMES:
        match info.get(key):
            case datetime() as time:
                return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
            case int() | float() as number:
                return number / 1000 if key == "modification_time" else float(number)
            case str() as text:
                with suppress(ValueError):
                    return datetime.fromisoformat(text).timestamp()
    return None
