"""HDFS by hdfs-native: one client for each process and NameNode, a deadline for each call, names as they are.

This is in the place of hdfs-native's own file systems for fsspec, which (as of 0.14) drop what follows `#`, `?` and `;`
in a name and change its capitals, and of which fsspec makes one for each thread, each with a thread for each core.

hdfs-native waits for a NameNode that does not answer until the connection ends, a quarter of an hour or longer. After a
deadline the next call uses another client, which connects again, so that it finds the NameNode that is active then.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from fsspec import AbstractFileSystem
from hdfs_native import Client, FileReader, FileWriter, WriteOptions
from hdfs_native.fsspec import BaseFileSystem

from trainyard import deadlines
from trainyard.errors import DeadlineError, StorageError, summarize
from trainyard.files import hadoop_conf

T = TypeVar("T")

CALL_SECONDS = 60.0
"""How long a call of the NameNode may take."""
DATA_SECONDS = 120.0
"""How long a call of DataNodes may take, beside the time for its bytes: hdfs-native waits for one that does not answer
for a minute (dfs.client.socket-timeout) before it uses the next one."""
MIN_BYTES_PER_SECOND = 1 << 20
CACHED_SECONDS = 3.0
"""How long hdfs-native keeps the connection of a read for the next one (`DATANODE_CACHE_EXPIRY`), in one cache for all
clients of a process. In a forked process a read by such a connection would never return."""
CLIENTS = 4
"""How many clients of one NameNode take turns, if calls do not return in time."""
_PIECE = 1 << 20
_ABOUT_THE_PATH = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)

_filesystems: dict[str, Any] = {}
_lock = threading.Lock()
_inherited: list[Any] = []
"""Those of the process that this one was forked from. Clients are never released, in no process: they would wait for
their threads. Those of a forked process are its parent's, and every subprocess that is started with a `preexec_fn`, as
pyspark does, would hang."""
_read_at = _readable_at = float("-inf")
"""When this process has read last, and from when on it may: then no connection of its parent's is used."""


def connect(uri: str) -> Any:
    """Return the file system of a URI, which all threads of this process share."""
    scheme, _, rest = uri.partition("://")
    address = f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"
    with _lock:
        if address not in _filesystems:
            _filesystems[address] = _CLASSES[scheme](address)
        return _filesystems[address]


def _forget_clients() -> None:
    """Have a forked process create clients of its own, and leave the connections of its parent."""
    global _filesystems, _lock, _readable_at
    _inherited.append(_filesystems)
    _filesystems, _lock = {}, threading.Lock()
    _readable_at = max(_readable_at, _read_at + CACHED_SECONDS)


os.register_at_fork(after_in_child=_forget_clients)


class _Calls:
    """The client of a NameNode, as hdfs-native's file system uses it; each call has a deadline."""

    def __init__(self, address: str) -> None:
        self._address, self._clients, self._current = address, [Client(address)], 0
        self._turn = threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            return self.run(f"call {name}", lambda client: getattr(client, name)(*arguments, **options))

        return call

    def list_status(self, path: str, recursive: bool = False) -> list[Any]:
        """Return the entries of a directory, which hdfs-native requests one after the other."""
        return self.run(f"list {path}", lambda client: list(client.list_status(path, recursive)))

    def read(self, path: str) -> FileReader:
        """Open a file for reading."""
        return FileReader(_Reads(self, path))  # type: ignore[arg-type]

    def create(self, path: str, write_options: WriteOptions) -> FileWriter:
        """Create a file, and open it for writing."""
        inner = self.run(f"create {path}", lambda client: client.inner.create(path, write_options))
        return FileWriter(_Writes(self, path, inner))  # type: ignore[arg-type]

    def run(self, what: str, function: Callable[[Client], T], seconds: float | None = None) -> T:
        """Return the result of a function of the client.

        Raises:
            DeadlineError: It did not return in time. Another client is used afterwards.
            StorageError: HDFS failed. An error about the path, such as FileNotFoundError, is raised as it is.
        """
        client = self._clients[self._current]
        try:
            return deadlines.call(f"{what} of {self._address}", seconds or CALL_SECONDS, lambda: function(client))
        except DeadlineError:
            self._drop(client)
            raise
        except _ABOUT_THE_PATH:
            raise
        except (OSError, RuntimeError) as error:
            raise StorageError(f"cannot {what} of {self._address}: {summarize(error)}") from error

    def transfer(self, what: str, function: Callable[[], T], length: int) -> T:
        """Return the result of a function that reads or writes so many bytes. Raises DeadlineError as `run`."""
        return self.run(what, lambda _: function(), DATA_SECONDS + length / MIN_BYTES_PER_SECOND)

    def _drop(self, client: Client) -> None:
        with self._turn:
            if self._clients[self._current] is client:  # no other call has dropped it
                if len(self._clients) < CLIENTS:
                    self._clients.append(Client(self._address))
                self._current = (self._current + 1) % CLIENTS


class _Reads:
    """What hdfs-native's reader reads from: a file that is opened again after a deadline."""

    def __init__(self, calls: _Calls, path: str) -> None:
        self._calls, self._path, self._position = calls, path, 0
        self._file: Any = None
        self._length = int(self._open().file_length())

    def file_length(self) -> int:
        return self._length

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        if not 0 <= position <= self._length:
            raise ValueError(f"position {position} is not in a file of {self._length} bytes")
        self._position = position

    def read(self, size: int) -> bytes:
        rest = self._length - self._position
        data = self.read_range(self._position, rest if size < 0 else min(size, rest))
        self._position += len(data)
        return data

    def read_range(self, offset: int, length: int) -> bytes:
        global _read_at
        if length <= 0:
            return b""
        file = self._open()
        time.sleep(max(_readable_at - time.monotonic(), 0))
        try:
            data = self._calls.transfer(f"read {self._path}", lambda: bytes(file.read_range(offset, length)), length)
        except DeadlineError:
            self._file = None
            raise
        _read_at = time.monotonic()
        return data

    def read_range_stream(self, offset: int, length: int) -> Iterator[bytes]:
        for start in range(offset, offset + length, _PIECE):
            yield self.read_range(start, min(_PIECE, offset + length - start))

    def _open(self) -> Any:
        if self._file is None:
            self._file = self._calls.run(f"open {self._path}", lambda client: client.inner.read(self._path))
        return self._file


class _Writes:
    """What hdfs-native's writer writes to. After a deadline the file is left as it is, and closing it does nothing."""

    def __init__(self, calls: _Calls, path: str, file: Any) -> None:
        self._calls, self._path, self._file = calls, path, file

    def write(self, data: Any) -> int:
        return self._transfer("write", lambda: int(self._file.write(data)), memoryview(data).nbytes)

    def hsync(self) -> None:
        self._transfer("synchronize", self._file.hsync, 0)

    def close(self) -> None:
        if self._file is not None:
            self._transfer("close", self._file.close, 0)
            self._file = None

    def _transfer(self, what: str, function: Callable[[], T], length: int) -> T:
        if self._file is None:
            raise ValueError("the file is closed")
        try:
            return self._calls.transfer(f"{what} {self._path}", function, length)
        except DeadlineError:
            self._file = None
            raise


class _Native(BaseFileSystem):
    """A file system of hdfs-native that takes names as they are, and is not one of fsspec's instances.

    New files and directories have the permissions of Hadoop's client configuration; hdfs-native's are 0644 and 0755.
    """

    cachable = False

    def __init__(self, address: str) -> None:
        AbstractFileSystem.__init__(self)
        self.address, self.client = address, _Calls(address)  # type: ignore[assignment]
        self._umask = hadoop_conf.read_umask()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        scheme = f"{cls.protocol}://"
        return f"/{path.removeprefix(scheme).partition('/')[2]}" if path.startswith(scheme) else path or "/"

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Create a directory."""
        self.client.mkdirs(self._strip_protocol(path), 0o777 & ~self._umask, create_parents)

    def chmod(self, path: str, mode: int) -> None:
        """Change the permissions of a file or directory."""
        self.client.set_permission(self._strip_protocol(path), mode)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:  # type: ignore[override]
        if mode == "rb":
            return self.client.read(path)
        return self.client.create(path, WriteOptions(overwrite=True, permission=0o666 & ~self._umask))

    def unstrip_protocol(self, name: str) -> str:
        """Return the URI of a path."""
        return f"{self.address}{self._strip_protocol(name)}"


class _Hdfs(_Native):
    protocol = "hdfs"


class _ViewFs(_Native):
    protocol = "viewfs"


_CLASSES = {"hdfs": _Hdfs, "viewfs": _ViewFs}
