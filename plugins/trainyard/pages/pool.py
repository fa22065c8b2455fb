"""Threads for pages that wait for storage, so that a storage that hangs does not block Airflow's threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import ParamSpec, TypeVar

import anyio.to_thread

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 16
_LIMITER = anyio.CapacityLimiter(THREADS)


def in_own_pool(function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Run a function in at most `THREADS` threads that only such functions use."""

    @wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await anyio.to_thread.run_sync(partial(function, *args, **kwargs), limiter=_LIMITER)

    return run
