"""Files on any fsspec file system, with the two atomic steps that durability rests on.

`create` makes a file that must not exist yet: of several callers exactly one succeeds.
`replace` swaps a file's content in one step: a reader sees the old bytes or the new, whole.
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

_HELD: dict[int, Any] = {}
_ROUTES: dict[str, Any] = {}
_PIECE = 8 << 20
_CHANGED = ("mtime", "modification_time", "ETag", "etag", "LastModified", "last_modified", "updated")
"""What file systems call the time at which a file changed, or the name of its content."""


def resolve(root: str, name: str) -> str:
    """`name` as a URI: kept when it is absolute or has a scheme, else a path below `root`."""
    return name if "://" in name or name.startswith("/") else join(root, name)


def join(uri: str, *parts: str) -> str:
    """`uri` followed by path `parts`."""
    return "/".join([uri.rstrip("/"), *(part.strip("/") for part in parts)])


def register_filesystem(protocol: str, filesystem: Any) -> None:
    """From now on, URIs of `protocol` mean `filesystem` in this process."""
    _ROUTES[protocol] = filesystem


def local_path(uri: str) -> Path | None:
    """The path of a file on this machine, or None when `uri` lies elsewhere."""
    fs, path = _at(uri)
    return Path(path) if isinstance(fs, LocalFileSystem) else None


def exists(uri: str) -> bool:
    fs, path = _at(uri)
    return bool(fs.exists(path))


def list_names(uri: str) -> list[str]:
    """Names of what lies directly in the directory `uri`, sorted; empty when there is none."""
    fs, path = _at(uri)
    if not fs.isdir(path):
        return []
    return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in fs.ls(path, detail=False))


def list_files(uri: str) -> list[tuple[str, int, str]]:
    """Path, bytes and time of change of each file at or below `uri`, which may have wildcards; sorted.

    Raises ValueError where the file system does not tell when a file changed.
    """
    fs, path = _at(uri)
    found: dict[str, Any] = {}
    for top in fs.glob(path) if has_magic(path) else [path]:
        found |= fs.find(top, detail=True)
    return sorted((name, int(info["size"]), _changed(name, info)) for name, info in found.items())


def read(uri: str) -> bytes:
    fs, path = _at(uri)
    return bytes(fs.cat_file(path))


def read_range(uri: str, begin: int, length: int) -> bytes:
    """`length` bytes from `begin` on. Raises OSError when the file has fewer."""
    fs, path = _at(uri)
    data = bytes(fs.cat_file(path, begin, begin + length))
    if len(data) != length:
        raise OSError(f"{uri} has {len(data)} of {length} bytes from byte {begin} on")
    return data


def size(uri: str) -> int:
    """The bytes of a file. Raises FileNotFoundError."""
    fs, path = _at(uri)
    return int(fs.size(path))


def checksum(uri: str) -> tuple[int, str]:
    """The bytes of a file and their sha256, read piece by piece. Raises FileNotFoundError."""
    digest, length = hashlib.sha256(), 0
    with open_input(uri) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            length += len(piece)
    return length, digest.hexdigest()


def open_input(uri: str) -> IO[bytes]:
    fs, path = _at(uri)
    return fs.open(path, "rb")  # type: ignore[no-any-return]


def open_output(uri: str) -> IO[bytes]:
    """A new file for writing; its directories are made."""
    fs, path = _at(uri)
    fs.makedirs(_parent(path), exist_ok=True)
    return fs.open(path, "wb")  # type: ignore[no-any-return]


def create(uri: str, data: bytes) -> None:
    """Write `data` to `uri` in one step. Raises FileExistsError when there is a file already."""
    fs, path = _at(uri)
    staged = _stage(fs, path, data)
    try:
        if isinstance(fs, LocalFileSystem):
            os.link(staged, path)
        else:
            fs.mv(staged, path)
    finally:
        if fs.exists(staged):
            fs.rm_file(staged)


def write_error(place: str) -> str:
    """Why nothing can be written to the directory `place`, empty when it can: a file is written there and removed."""
    trial = join(place, f".trial-{uuid.uuid4().hex}")
    try:
        create(trial, b"")
        remove(trial)
    # Each file system has errors of its own for what amounts to "no".
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def upload(uri: str, file: Path) -> None:
    """Copy a file of this machine to `uri` in one step; one that is there already stays."""
    fs, path = _at(uri)
    fs.makedirs(_parent(path), exist_ok=True)
    staged = _staged(path)
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
    """Write `data` to `uri` in one step, in place of what was there."""
    fs, path = _at(uri)
    _put_in_place(fs, _stage(fs, path, data), path)


def copy(source: str, target: str) -> None:
    """Copy a file, piece by piece, to `target` in one step, in place of what was there; a directory file by file."""
    fs, origin = _at(source)
    if fs.isdir(origin):
        for name in list_names(source):
            copy(join(source, name), join(target, name))
        return
    fs, path = _at(target)
    fs.makedirs(_parent(path), exist_ok=True)
    staged = _staged(path)
    try:
        with open_input(source) as read, fs.open(staged, "wb") as written:
            shutil.copyfileobj(read, written, _PIECE)
        _put_in_place(fs, staged, path)
    finally:
        if fs.exists(staged):
            fs.rm_file(staged)


def move(source: str, target: str) -> None:
    """Rename a directory in one step. Raises FileExistsError when `target` holds something."""
    fs, origin = _at(source)
    _, path = _at(target)
    if fs.exists(path):
        raise FileExistsError(f"{target} exists already")
    fs.makedirs(_parent(path), exist_ok=True)
    if isinstance(fs, LocalFileSystem):
        os.rename(origin, path)
    else:
        fs.mv(origin, path)


def remove(uri: str) -> None:
    """Remove a file or a whole directory; nothing there is no error."""
    fs, path = _at(uri)
    if fs.exists(path):
        fs.rm(path, recursive=True)


def _at(uri: str) -> tuple[Any, str]:
    """The file system of `uri`, and its path there.

    File systems are held for good. In a forked child fsspec forgets its own; where nothing else held
    them, a client with threads (hdfs-native) would end there, and wait for threads that only the
    parent has: every subprocess that is started with a `preexec_fn`, as pyspark does, would hang.
    """
    protocol, _, rest = uri.partition("://")
    if protocol in _ROUTES:
        return _ROUTES[protocol], f"/{rest.partition('/')[2]}"
    fs, path = fsspec.core.url_to_fs(uri)
    _HELD[id(fs)] = fs
    return fs, path


def _changed(name: str, info: Mapping[str, Any]) -> str:
    for key in _CHANGED:
        if key in info:
            return str(info[key])
    raise ValueError(f"{name} has no time of change: {', '.join(info)}")


def _put_in_place(fs: Any, staged: str, path: str) -> None:
    if isinstance(fs, LocalFileSystem):
        os.replace(staged, path)
    else:
        fs.mv(staged, path, overwrite=True)


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"


def _staged(path: str) -> str:
    """A new name beside `path`, which readers pass over."""
    return f"{_parent(path)}/.{path.rsplit('/', 1)[-1]}.{uuid.uuid4().hex}"


def _stage(fs: Any, path: str, data: bytes) -> str:
    fs.makedirs(_parent(path), exist_ok=True)
    staged = _staged(path)
    with fs.open(staged, "wb") as file:
        file.write(data)
        if isinstance(fs, LocalFileSystem):
            file.flush()
            os.fsync(file.fileno())
    return staged
