"""Threads for pages that wait for storage, so that a storage that hangs blocks neither Airflow's threads nor a page."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import anyio.to_thread

from trainyard.files.filesystems import while_person_waits

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 16
_LIMITER = anyio.CapacityLimiter(THREADS)


def in_own_pool(function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Run a function in at most `THREADS` threads that only such functions use."""

    @wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        def call() -> T:
            with while_person_waits():
                return function(*args, **kwargs)

        return await anyio.to_thread.run_sync(call, limiter=_LIMITER)

    # FastAPI of the day of Airflow 3.1 would look up the names of annotations in this module.
    run.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined]
    return run
