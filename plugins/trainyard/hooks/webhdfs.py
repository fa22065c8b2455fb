"""HDFS over WebHDFS, for an Airflow that reaches only the cluster's HTTP ports.

fsspec's own WebHDFS cannot replace it (checked with fsspec 2026.9.0): its `mv` sends RENAME without an overwrite option
and ignores the answer, so neither `storage.create` nor `storage.replace` would be atomic; it takes a single NameNode.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import wraps
from typing import IO, Any, TypeVar

import requests
from fsspec import AbstractFileSystem
from hdfs import Client, HdfsError, InsecureClient

from trainyard.compat import AirflowNotFoundException, conf, get_connection
from trainyard.connection_fields import read_urls
from trainyard.errors import TrainyardError
from trainyard.files import kerberos
from trainyard.planning.runtime import submitting_user

T = TypeVar("T")
PORTS = {"http": 9870, "https": 9870}
TIMEOUT_SECONDS = (5.0, 60.0)
"""How long to wait for a connection, and for the next bytes of an answer."""


def _with_os_errors(cls: type[T]) -> type[T]:
    """Raise the client's errors as OSError in each method of a class, as other file systems do."""

    def translate(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return method(*arguments, **options)
            except HdfsError as error:
                raise OSError(str(error)) from error

        return call

    for name, method in [*vars(cls).items()]:
        if callable(method) and not name.startswith("__"):
            setattr(cls, name, translate(method))
    return cls


@_with_os_errors
class WebHdfs(AbstractFileSystem):  # type: ignore[misc]
    """A client of the package `hdfs` as an fsspec file system."""

    protocol = "hdfs"
    cachable = False

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return name, size, type and modification time (ms). Raises FileNotFoundError."""
        status = self._status(path)
        if status is None:
            raise FileNotFoundError(path)
        return _entry(path, status)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """List a directory, or a file alone, as other file systems do. Raises FileNotFoundError."""
        try:
            listed = self._client.list(path, status=True)
        except HdfsError:
            info = self.info(path)
            if info["type"] == "directory":
                raise
            entries = [info]
        else:
            entries = [_entry(f"{path.rstrip('/')}/{name}", status) for name, status in listed]
        return entries if detail else [entry["name"] for entry in entries]

    def exists(self, path: str, **_: Any) -> bool:
        """Return whether there is a file or directory; fsspec's own method takes any error for an absent file."""
        return self._status(path) is not None

    def isdir(self, path: str) -> bool:
        """Return whether there is a directory, as `exists`."""
        status = self._status(path)
        return status is not None and status["type"] == "DIRECTORY"

    def isfile(self, path: str) -> bool:
        """Return whether there is a file, as `exists`."""
        status = self._status(path)
        return status is not None and status["type"] == "FILE"

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create a directory and its parents."""
        if not exist_ok and self.exists(path):
            raise FileExistsError(path)
        self._client.makedirs(path)

    def mv(self, path1: str, path2: str, overwrite: bool = False, **_: Any) -> None:
        """Rename in one step. Raises FileExistsError if `path2` exists and is not to be overwritten."""
        try:
            answer = self._client._rename(path1, destination=path2, renameoptions="OVERWRITE" if overwrite else "NONE")
        except HdfsError as error:
            if not overwrite and ("FileAlreadyExists" in str(error) or self.exists(path2)):
                raise FileExistsError(path2) from error
            raise
        if answer.content:  # that of a rename without options, which replaces nothing and reports no error
            raise TrainyardError(
                f"the server at {self._client.url} does not know the options of RENAME, so files cannot be replaced in "
                "one step; HttpFS is such a server. Name the NameNodes in the connection that webhdfs= names."
            )

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Remove a file or directory."""
        self._client.delete(path, recursive=recursive)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self.rm(path)

    def rm_file(self, path: str) -> None:
        """Remove one file."""
        self.rm(path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        """Return the bytes of a file, or of a range of it."""
        begin = start or 0
        length = None if end is None else end - begin
        self.info(path)
        with self._client.read(path, offset=begin, length=length) as reader:
            return bytes(reader.read())

    def chmod(self, path: str, mode: int) -> None:
        """Change the permissions of a file or directory."""
        self._client.set_permission(path, f"{mode:o}")

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        """Copy a file of this machine, in chunks."""
        self._client.upload(rpath, lpath, overwrite=True)

    def _status(self, path: str) -> dict[str, Any] | None:
        """Return the status of a file, None if it does not exist; the client's own way takes any error for that."""
        try:
            return dict(self._client.status(path))
        except HdfsError as error:
            if error.exception == "FileNotFoundException":
                return None
            raise

    def _open(self, path: str, mode: str = "rb", **_: Any) -> IO[bytes]:
        if mode == "rb":
            return io.BytesIO(self.cat_file(path))
        return _Writer(self._client, path)


@_with_os_errors
class _Writer(io.BytesIO):
    """A buffer that is uploaded when it is closed: WebHDFS writes a whole file at a time."""

    def __init__(self, client: Client, path: str) -> None:
        super().__init__()
        self._client, self._path = client, path

    def close(self) -> None:
        if not self.closed:
            self._client.write(self._path, self.getvalue(), overwrite=True)
        super().close()


def connect(conn_id: str) -> WebHdfs:
    """Return the file system of an Airflow connection.

    The connection has a host (or several, separated by commas, each with an optional port), port, login, and http or
    https as schema. With `security = kerberos` in Airflow's `[core]`, as for Airflow's WebHDFS hook, requests use the
    Kerberos ticket.

    Raises:
        TrainyardError: There is no such connection, a host or the schema is not valid, or there is no ticket.
    """
    try:
        connection = get_connection(conn_id)
    except AirflowNotFoundException:
        raise TrainyardError(
            f"there is no connection {conn_id!r}, which webhdfs= of the trainyard connection names; create it with the "
            "host, port and login of WebHDFS."
        ) from None
    urls = read_urls(conn_id, connection.schema or "http", connection.host or "localhost", connection.port, PORTS)
    if conf.get("core", "security", fallback="") != "kerberos":
        return WebHdfs(
            InsecureClient(";".join(urls), user=connection.login or submitting_user(), timeout=TIMEOUT_SECONDS)
        )
    session = requests.Session()
    session.auth = kerberos.ticket()[1]
    return WebHdfs(Client(";".join(urls), session=session, timeout=TIMEOUT_SECONDS))


def _entry(path: str, status: dict[str, Any]) -> dict[str, Any]:
    kind = "directory" if status["type"] == "DIRECTORY" else "file"
    mode = int(status["permission"], 8) if "permission" in status else None
    return {
        "name": path, "size": status["length"], "type": kind, "modification_time": status["modificationTime"],
        "owner": status.get("owner"), "permission": mode,
    }  # fmt: skip
