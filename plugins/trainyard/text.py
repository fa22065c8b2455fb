"""Lines of a task log, and text in columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Log = Callable[[str], None]
"""Log one line to the task log."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return `rows` under `head`, each column as wide as its widest cell."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    return "\n".join(line.rstrip() for line in lines)


def shorten(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters, of which the last one says that there are more."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
