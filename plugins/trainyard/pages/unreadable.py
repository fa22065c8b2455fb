"""Note what cannot be read, so that a page shows everything else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainyard.errors import summarize


@contextmanager
def noted(unreadable: dict[str, str], name: str) -> Iterator[None]:
    """End the `with` at an error, and add to `unreadable` why what is called `name` cannot be read."""
    try:
        yield
    except Exception as error:  # each file system raises exceptions of its own
        unreadable[name] = summarize(error)
