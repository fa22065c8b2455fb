"""Note what cannot be read, so that everything else is shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainyard.errors import summarize


@contextmanager
def noted(unreadable: dict[str, str] | None, name: str) -> Iterator[None]:
    """End the `with` at an error, and add to `unreadable` why what is called `name` cannot be read; raise for None."""
    try:
        yield
    except Exception as error:  # each file system raises exceptions of its own
        if unreadable is None:
            raise
        unreadable[name] = summarize(error)
