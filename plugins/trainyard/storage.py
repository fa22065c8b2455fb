"""Files on any fsspec file system, with two atomic operations.

`create` writes a file that must not exist: of several concurrent callers exactly one succeeds.
`replace` replaces a file's content in one step: a reader sees the old bytes or the new ones, never a mixture.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Mapping
from glob import has_magic
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

_FILESYSTEMS: dict[int, Any] = {}
_REGISTERED: dict[str, Any] = {}
_CHUNK = 8 << 20
_MODIFIED = ("mtime", "modification_time", "ETag", "etag", "LastModified", "last_modified", "updated")
"""The names that file systems give to a modification time, or to a hash of the content."""


def resolve(root: str, name: str) -> str:
    """Return `name` as a URI: unchanged if it is absolute or has a scheme, else a path below `root`."""
    return name if "://" in name or name.startswith("/") else join(root, name)


def join(uri: str, *parts: str) -> str:
    """Return `uri` followed by path `parts`."""
    return "/".join([uri.rstrip("/"), *(part.strip("/") for part in parts)])


def register_filesystem(protocol: str, filesystem: Any) -> None:
    """Use `filesystem` for all URIs of `protocol` in this process from now on."""
    _REGISTERED[protocol] = filesystem


def local_path(uri: str) -> Path | None:
    """Return the path of a file on this machine, or None for a URI of another storage."""
    fs, path = _locate(uri)
    return Path(path) if isinstance(fs, LocalFileSystem) else None


def exists(uri: str) -> bool:
    """Return whether there is a file or directory at `uri`."""
    fs, path = _locate(uri)
    return bool(fs.exists(path))


def list_names(uri: str) -> list[str]:
    """Return the sorted names in the directory `uri`; empty if it does not exist."""
    fs, path = _locate(uri)
    if not fs.isdir(path):
        return []
    return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in fs.ls(path, detail=False))


def list_files(uri: str) -> list[tuple[str, int, str]]:
    """Return (path, bytes, modification time) of each file at or below `uri`, sorted.

    Args:
        uri: A file, a directory, or a pattern with wildcards.

    Raises:
        ValueError: The file system has no modification times.
    """
    fs, path = _locate(uri)
    files: dict[str, Any] = {}
    for top in fs.glob(path) if has_magic(path) else [path]:
        files |= fs.find(top, detail=True)
    return sorted((name, int(info["size"]), _modification_time(name, info)) for name, info in files.items())


def read(uri: str) -> bytes:
    """Return the content of a file."""
    fs, path = _locate(uri)
    return bytes(fs.cat_file(path))


def read_range(uri: str, begin: int, length: int) -> bytes:
    """Return `length` bytes from offset `begin`. Raises OSError if the file has fewer."""
    fs, path = _locate(uri)
    data = bytes(fs.cat_file(path, begin, begin + length))
    if len(data) != length:
        raise OSError(f"{uri} has {len(data)} of {length} bytes from byte {begin} on")
    return data


def size(uri: str) -> int:
    """Return the size of a file in bytes. Raises FileNotFoundError."""
    fs, path = _locate(uri)
    return int(fs.size(path))


def checksum(uri: str) -> tuple[int, str]:
    """Return the size of a file in bytes and its sha256, read in chunks. Raises FileNotFoundError."""
    digest, length = hashlib.sha256(), 0
    with open_input(uri) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            length += len(chunk)
    return length, digest.hexdigest()


def open_input(uri: str) -> IO[bytes]:
    """Open a file for reading."""
    fs, path = _locate(uri)
    return fs.open(path, "rb")  # type: ignore[no-any-return]


def open_output(uri: str) -> IO[bytes]:
    """Open a new file for writing, and create its directories."""
    fs, path = _locate(uri)
    fs.makedirs(_parent(path), exist_ok=True)
    return fs.open(path, "wb")  # type: ignore[no-any-return]


def create(uri: str, data: bytes) -> None:
    """Write `data` to `uri` in one step. Raises FileExistsError if there is a file already."""
    fs, path = _locate(uri)
    staged = _write_staged(fs, path, data)
    try:
        if isinstance(fs, LocalFileSystem):
            os.link(staged, path)
        else:
            fs.mv(staged, path)
    finally:
        if fs.exists(staged):
            fs.rm_file(staged)


def write_error(directory: str) -> str:
    """Return why nothing can be written to a directory, "" if it can be: a file is written there and removed."""
    trial = join(directory, f".trial-{uuid.uuid4().hex}")
    try:
        create(trial, b"")
        remove(trial)
    # Each file system raises exceptions of its own.
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def upload(uri: str, file: Path) -> None:
    """Copy a file of this machine to `uri` in one step. A file that exists there already stays."""
    fs, path = _locate(uri)
    fs.makedirs(_parent(path), exist_ok=True)
    staged = _staging_path(path)
    try:
        fs.put_file(str(file), staged)
        if not fs.exists(path):
            fs.mv(staged, path)
    except FileExistsError:
        return
    finally:
        if fs.exists(staged):
            fs.rm_file(staged)


def replace(uri: str, data: bytes) -> None:
    """Write `data` to `uri` in one step, replacing what was there."""
    fs, path = _locate(uri)
    _publish(fs, _write_staged(fs, path, data), path)


def copy(source: str, target: str) -> None:
    """Copy a file in chunks, replacing `target` in one step; of a directory, each file."""
    fs, origin = _locate(source)
    if fs.isdir(origin):
        for name in list_names(source):
            copy(join(source, name), join(target, name))
        return
    fs, path = _locate(target)
    fs.makedirs(_parent(path), exist_ok=True)
    staged = _staging_path(path)
    try:
        with open_input(source) as reader, fs.open(staged, "wb") as writer:
            shutil.copyfileobj(reader, writer, _CHUNK)
        _publish(fs, staged, path)
    finally:
        if fs.exists(staged):
            fs.rm_file(staged)


def move(source: str, target: str) -> None:
    """Rename a directory in one step. Raises FileExistsError if `target` exists."""
    fs, origin = _locate(source)
    _, path = _locate(target)
    if fs.exists(path):
        raise FileExistsError(f"{target} exists already")
    fs.makedirs(_parent(path), exist_ok=True)
    if isinstance(fs, LocalFileSystem):
        os.rename(origin, path)
    else:
        fs.mv(origin, path)


def remove(uri: str) -> None:
    """Remove a file or a directory, if it exists."""
    fs, path = _locate(uri)
    if fs.exists(path):
        fs.rm(path, recursive=True)


def _locate(uri: str) -> tuple[Any, str]:
    """Return the file system of `uri`, and the path on it.

    File systems are never released. In a forked child fsspec clears its cache; a client with threads (hdfs-native)
    would then be destroyed there, and wait for threads that only the parent has: every subprocess that is started with
    a `preexec_fn`, as pyspark does, would hang.
    """
    protocol, _, rest = uri.partition("://")
    if protocol in _REGISTERED:
        return _REGISTERED[protocol], f"/{rest.partition('/')[2]}"
    fs, path = fsspec.core.url_to_fs(uri)
    _FILESYSTEMS[id(fs)] = fs
    return fs, path


def _modification_time(name: str, info: Mapping[str, Any]) -> str:
    for key in _MODIFIED:
        if key in info:
            return str(info[key])
    raise ValueError(f"{name} has no modification time: {', '.join(info)}")


def _publish(fs: Any, staged: str, path: str) -> None:
    if isinstance(fs, LocalFileSystem):
        os.replace(staged, path)
    else:
        fs.mv(staged, path, overwrite=True)


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"


def _staging_path(path: str) -> str:
    """Return a new hidden name beside `path`, which readers ignore."""
    return f"{_parent(path)}/.{path.rsplit('/', 1)[-1]}.{uuid.uuid4().hex}"


def _write_staged(fs: Any, path: str, data: bytes) -> str:
    fs.makedirs(_parent(path), exist_ok=True)
    staged = _staging_path(path)
    with fs.open(staged, "wb") as file:
        file.write(data)
        if isinstance(fs, LocalFileSystem):
            file.flush()
            os.fsync(file.fileno())
    return staged
