"""The file system of a URI, and the path on it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import fsspec

from trainyard import atomic
from trainyard.errors import TrainyardError

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
"""The scheme of a URI, or several, of file systems that are layered."""
_DROPPED = re.compile(r"[#?;\x00-\x1f\x7f]")
"""What a file system may take for something else than a part of a name."""
_FILESYSTEMS: dict[int, Any] = {}
_REGISTERED: dict[str, Any] = {}


def register(uri: str, filesystem: Any) -> None:
    """Use `filesystem` in this process from now on for all URIs with the scheme, host and port of `uri`."""
    _REGISTERED[_authority(uri)] = filesystem


def find_registered(uri: str) -> Any:
    """Return the file system that is registered for scheme, host and port of a URI, None if there is none."""
    return _REGISTERED.get(_authority(uri))


def locate(uri: str) -> tuple[Any, str]:
    """Return the file system of `uri`, and the path on it.

    File systems are never released. In a forked child fsspec clears its cache; a client with threads (hdfs-native)
    would then be destroyed there, and wait for threads that only the parent has: every subprocess that is started with
    a `preexec_fn`, as pyspark does, would hang.

    Raises:
        TrainyardError: There is no client for the URI, or it would use another path.
    """
    if registered := find_registered(uri):
        return registered, f"/{uri.partition('://')[2].partition('/')[2]}"
    # What another process wrote must be seen: clients of object stores keep listings by default.
    options = {"use_listings_cache": False} if uri.startswith(atomic.OBJECT_STORES) else {}
    schemes, separator, _ = uri.partition("://")
    scheme = schemes.partition("::")[0]
    try:
        if separator and scheme not in {*fsspec.available_protocols(), *fsspec.registry}:
            raise ImportError(f"fsspec has none of {scheme}://")
        if scheme in ("hdfs", "viewfs"):
            _keep_names(scheme)
        fs, path = fsspec.core.url_to_fs(uri, **options)
    except ImportError as error:
        raise TrainyardError(
            f"{uri!r} needs a client that this Python environment does not have: {error}. Install "
            "airflow-trainyard[s3], [gcs] or [azure] for an object store, or [cluster] for HDFS."
        ) from error
    if dropped := [character for character in _DROPPED.findall(uri) if character not in path]:
        raise TrainyardError(
            f"{uri!r}: the client of {scheme}:// takes {dropped[0]!r} for the end of a name, and would use another "
            "path; write a name without it."
        )
    _FILESYSTEMS[id(fs)] = fs
    return fs, path


def _keep_names(scheme: str) -> None:
    """Let hdfs-native take names as they are: as of 0.14 it drops what follows `#`, `?`, `;`, and changes capitals."""
    client = fsspec.get_filesystem_class(scheme)
    if not client.__module__.startswith("hdfs_native."):
        return

    def strip_protocol(_: type, path: str) -> str:
        return f"/{path.partition('://')[2].partition('/')[2]}" if SCHEME.match(path) else path or "/"

    def get_kwargs_from_urls(path: str) -> dict[str, Any]:
        url = urlsplit(path)
        return {"host": url.netloc.rpartition("@")[2].removesuffix(f":{url.port}") or None, "port": url.port}

    methods = {
        "_strip_protocol": classmethod(strip_protocol),
        "_get_kwargs_from_urls": staticmethod(get_kwargs_from_urls),
    }
    fixed = type(client.__name__, (client,), methods)
    fsspec.register_implementation(scheme, fixed, clobber=True)


def _authority(uri: str) -> str:
    """Return scheme, host and port of a URI, "" for a path."""
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if separator else ""
