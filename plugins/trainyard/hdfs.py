"""HDFS by hdfs-native: one client for each process and NameNode, names as they are, and the site's permissions.

This is in the place of hdfs-native's own file systems for fsspec, which (as of 0.14) drop what follows `#`, `?` and `;`
in a name and change its capitals, and of which fsspec makes one for each thread, each with a thread for each core.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from fsspec import AbstractFileSystem
from hdfs_native import Client, WriteOptions
from hdfs_native.fsspec import BaseFileSystem

from trainyard import hadoop_conf

_clients: dict[str, Any] = {}
_lock = threading.Lock()
_inherited: list[Any] = []
"""Clients of the process that this one was forked from. They are never released: they would wait for their threads,
which only that process has, and every subprocess that is started with a `preexec_fn`, as pyspark does, would hang."""


def connect(uri: str) -> Any:
    """Return the file system of a URI, which all threads of this process share."""
    scheme, _, rest = uri.partition("://")
    address = f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"
    with _lock:
        if address not in _clients:
            _clients[address] = _CLASSES[scheme](address)
        return _clients[address]


def _forget_clients() -> None:
    """Have a forked process create clients of its own."""
    global _clients, _lock
    _inherited.append(_clients)
    _clients, _lock = {}, threading.Lock()


os.register_at_fork(after_in_child=_forget_clients)


class _Native(BaseFileSystem):
    """A file system of hdfs-native that takes names as they are, and is not one of fsspec's instances.

    New files and directories have the permissions of Hadoop's client configuration; hdfs-native's are 0644 and 0755.
    """

    cachable = False

    def __init__(self, address: str) -> None:
        AbstractFileSystem.__init__(self)
        self.address, self.client = address, Client(address)
        self._umask = hadoop_conf.read_umask()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        scheme = f"{cls.protocol}://"
        return f"/{path.removeprefix(scheme).partition('/')[2]}" if path.startswith(scheme) else path or "/"

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Create a directory."""
        self.client.mkdirs(self._strip_protocol(path), 0o777 & ~self._umask, create_parents)

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
