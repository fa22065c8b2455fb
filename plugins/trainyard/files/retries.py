"""Repeat what a storage does not answer for a while, as during a failover of the NameNode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tenacity import RetryCallState, RetryError, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from trainyard.errors import StorageError, TrainyardError, UnavailableError, summarize
from trainyard.files import storage
from trainyard.files.storage import ShortReadError

T = TypeVar("T")

RETRY_SECONDS = 120.0
MAX_WAIT_SECONDS = 10.0
PERMANENT = (
    FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError, ValueError, TypeError,
    LookupError, AttributeError, AssertionError, MemoryError, NotImplementedError, ShortReadError, TrainyardError,
)  # fmt: skip
"""Errors that another attempt would raise again."""


def retry(what: str, function: Callable[[], T]) -> T:
    """Return the result of `function`, which is called until it succeeds or two minutes have passed.

    Args:
        what: What it does, for messages: "read hdfs://nn/data".
        function: A function that can be repeated.

    Raises:
        UnavailableError: It did not succeed. An error that another attempt would raise again is raised as it is.
    """

    def report(state: RetryCallState) -> None:
        if state.attempt_number == 1 and state.outcome:
            print(f"cannot {what}, trying again: {summarize(state.outcome.exception())}", flush=True)

    attempts = Retrying(
        stop=stop_after_delay(RETRY_SECONDS),
        wait=wait_random_exponential(max=MAX_WAIT_SECONDS),
        retry=retry_if_exception(_may_pass),
        before_sleep=report,
    )
    try:
        return attempts(function)
    except RetryError as error:
        cause = error.last_attempt.exception()
        raise UnavailableError(f"cannot {what}, for {RETRY_SECONDS:.0f} s: {summarize(cause)}") from cause


def _may_pass(error: BaseException) -> bool:
    is_permanent = isinstance(error, PERMANENT) and not isinstance(error, StorageError)
    return isinstance(error, Exception) and not is_permanent


def read_file(uri: str) -> bytes:
    """Return the content of a file, as `storage.read` does. Raises UnavailableError as `retry`."""
    return retry(f"read {uri}", partial(storage.read, uri))


def replace_file(uri: str, data: bytes) -> None:
    """Write a file, as `storage.replace` does. Raises UnavailableError as `retry`."""
    retry(f"write {uri}", partial(storage.replace, uri, data))
