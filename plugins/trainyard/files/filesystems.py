"""The file system of a URI, and the path on it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import fsspec

from trainyard import deadlines
from trainyard.errors import DeadlineError, TrainyardError, UnavailableError
from trainyard.files import atomic, object_stores

_OF_THE_WEB = frozenset(["data", "ftp", "gist", "git", "github", "http", "https", "jlab", "jupyter"])
"""Protocols of fsspec that are refused: URIs come out of documents, too, which API servers and drivers follow."""
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*://")
"""The scheme of a URI, or several, of file systems that are layered."""
_DROPPED = re.compile(r"[#?;\x00-\x1f\x7f]")
"""What a file system may take for something else than a part of a name."""
_REGISTERED: dict[str, Any] = {}
ANSWER_SECONDS = 10.0
"""How long a storage may take to answer while a person waits."""
_answers: ContextVar[dict[str, bool] | None] = ContextVar("answers", default=None)
"""Whether each storage has answered so far, by scheme, host and port; None where no person waits."""


@contextmanager
def while_person_waits() -> Iterator[None]:
    """Refuse storage that does not answer within `ANSWER_SECONDS`, as soon as it is used in the `with`.

    Each storage is asked once. Other threads do so if they run in a copy of this context.
    """
    token = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(token)


def register(uri: str, filesystem: Any) -> None:
    """Use `filesystem` in this process from now on for all URIs with the scheme, host and port of `uri`."""
    _REGISTERED[_authority(uri)] = filesystem


def find_registered(uri: str) -> Any:
    """Return the file system that is registered for scheme, host and port of a URI, None if there is none."""
    return _REGISTERED.get(_authority(uri))


def locate(uri: str) -> tuple[Any, str]:
    """Return the file system of `uri`, which all threads may use, and the path on it.

    Raises:
        TrainyardError: There is no client for the URI, or it would use another path.
        UnavailableError: A person waits, and the storage does not answer.
    """
    fs, path = _locate(uri)
    if (answers := _answers.get()) is not None:
        _check_answer(answers, uri, fs, path)
    return fs, path


def _check_answer(answers: dict[str, bool], uri: str, fs: Any, path: str) -> None:
    storage = _authority(uri)
    if storage not in answers:
        try:
            deadlines.call(f"reach {storage}", ANSWER_SECONDS, lambda: fs.exists(path))
        except Exception as error:  # an error is an answer too; the call that follows raises it again
            answers[storage] = not isinstance(error, DeadlineError)
        else:
            answers[storage] = True
    if not answers[storage]:
        raise UnavailableError(
            f"{storage or uri} does not answer within {ANSWER_SECONDS:.0f} s; check the host in the URI, whether this "
            "machine reaches its network (a VPN may be needed), and whether the storage runs."
        )


def _locate(uri: str) -> tuple[Any, str]:
    if registered := find_registered(uri):
        return registered, f"/{uri.partition('://')[2].partition('/')[2]}"
    schemes, separator, _ = uri.partition("://")
    scheme = schemes.partition("::")[0]
    if web := [name for name in uri.replace("::", "://").split("://")[:-1] if name in _OF_THE_WEB]:
        raise TrainyardError(
            f"{uri!r}: {web[0]}:// is not a storage. A document of somebody else could name any server. Copy the file "
            "to the storage."
        )
    try:
        if separator and scheme not in fsspec.registry and scheme not in fsspec.available_protocols():
            raise ImportError(f"fsspec has none of {scheme}://")
        fs, path = _open(uri, schemes)
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
    return fs, path


def _open(uri: str, scheme: str) -> tuple[Any, str]:
    if scheme in ("hdfs", "viewfs") and importlib.util.find_spec("hdfs_native"):
        from trainyard.files import hdfs

        fs = hdfs.connect(uri)
        return fs, fs._strip_protocol(uri)
    # What another process wrote must be seen: clients of object stores keep listings by default.
    if uri.startswith(atomic.OBJECT_STORES):
        fs, path = fsspec.core.url_to_fs(uri, use_listings_cache=False)
        return object_stores.guard(fs), path
    return fsspec.core.url_to_fs(uri)  # type: ignore[no-any-return]


def _authority(uri: str) -> str:
    """Return scheme, host and port of a URI, "" for a path."""
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}" if separator else ""
