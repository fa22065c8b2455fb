"""Parts of a page in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

GENERATED = "<!-- Written by `python -m stack.docs`. Change the docstrings and tables that it reads, not this page. -->"


def page(title: str, *parts: str) -> str:
    """Return a page with its title, and a note for those who would edit it."""
    return "\n\n".join([GENERATED, f"# {title}", *filter(None, parts)]) + "\n"


def section(title: str, *parts: str, level: int = 2) -> str:
    """Return a heading and what follows it."""
    return "\n\n".join([f"{'#' * level} {title}", *filter(None, parts)])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; "" without rows."""
    if not rows:
        return ""
    lines = [_row(head), _row(["---"] * len(head)), *(_row([escape(cell) for cell in row]) for row in rows)]
    return "\n".join(lines)


def code(text: str) -> str:
    """Return a span of code."""
    return f"`{text}`" if text else ""


def escape(text: str) -> str:
    """Return text on one line, in which no character ends a cell."""
    return " ".join(text.split()).replace("|", "\\|")


def literal(text: str) -> str:
    """Return text in which `<` begins no tag, and `*` no emphasis; code stays code."""
    return re.sub(r"(`[^`]*`)|([<*])", lambda match: match[1] or f"\\{match[2]}", text)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
