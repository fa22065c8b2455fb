"""Errors of object stores, as those of HDFS: what may pass is a StorageError."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from trainyard.errors import StorageError, summarize

_CALLS = (
    "cat", "cat_file", "cat_ranges", "copy", "cp_file", "created", "exists", "find", "get_file", "glob", "info",
    "isdir", "isfile", "ls", "makedirs", "mkdir", "modified", "mv", "open", "pipe_file", "put_file", "rm", "rm_file",
    "size", "touch", "walk",
)  # fmt: skip
_CALLS_OF_FILES = ("close", "flush", "read", "readinto", "readline", "write")
_ERRNOS = frozenset(
    getattr(errno, name)
    for name in ("EAGAIN", "EBUSY", "EHOSTUNREACH", "EIO", "ENETDOWN", "ENETUNREACH", "EPIPE", "EREMOTEIO", "ETIMEDOUT")
    if hasattr(errno, name)
)
"""Of `InternalError`, `ServiceUnavailable` and `SlowDown`, by s3fs 2026.9.0, and of the network."""
_EXPIRED = frozenset({"400", "ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
"""Codes of errors that another process, with new credentials, may not get. Answers to HEAD have no code but 400."""
_CLIENTS = frozenset({"aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "requests", "urllib3"})
_OF_THE_NETWORK = re.compile(
    "Connect|HTTPClient|IncompleteRead|Payload|Retrieval|SSL|ServiceRequest|ServiceResponse|Streaming|Timeout|Transport"
)
"""The types of these clients, by their names: not all are installed."""
_FIRST_STATUS_OF_SERVERS = 500
_STATUSES = frozenset({408, 429})


def guard(fs: Any) -> Any:
    """Make the calls of a file system, and of the files that it opens, raise StorageError for errors that may pass.

    Args:
        fs: The file system, which all threads of a process share. A second call does nothing.
    """
    if not getattr(fs, "_is_guarded", False):
        fs._is_guarded = True
        _guard_calls(fs, _CALLS)
    return fs


def may_pass(error: BaseException) -> bool:
    """Return whether another attempt may succeed: the store is busy or cannot be reached, or a token has expired."""
    response = getattr(error.__cause__ or error, "response", None)
    if isinstance(response, dict) and response.get("Error", {}).get("Code") in _EXPIRED:
        return True
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    status = next(filter(lambda value: isinstance(value, int), _list_statuses(error, response)), None)
    if status is not None and (status >= _FIRST_STATUS_OF_SERVERS or status in _STATUSES):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _ERRNOS
    is_of_client = type(error).__module__.partition(".")[0] in _CLIENTS
    return is_of_client and bool(_OF_THE_NETWORK.search(type(error).__name__))


def _list_statuses(error: BaseException, response: Any) -> list[Any]:
    """Return what may be the status of HTTP in an error of botocore, gcsfs, azure or aiohttp."""
    metadata = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
    return [metadata.get("HTTPStatusCode"), *(getattr(error, name, None) for name in ("code", "status_code", "status"))]


def _guard_calls(target: Any, names: tuple[str, ...]) -> None:
    for name in names:
        if call := getattr(target, name, None):
            setattr(target, name, _guarded(call, name))


def _guarded(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(call)
    def run(*args: Any, **options: Any) -> Any:
        try:
            result = call(*args, **options)
        except StorageError:
            raise
        except Exception as error:
            if not may_pass(error):
                raise
            of = f" {args[0]}" if args and isinstance(args[0], str) else ""
            raise StorageError(f"cannot {name}{of} in an object store: {summarize(error)}") from error
        if name == "open":
            _guard_calls(result, _CALLS_OF_FILES)
        return result

    return run
