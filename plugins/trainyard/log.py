"""The type of a function that logs one line."""

from __future__ import annotations

from collections.abc import Callable

Log = Callable[[str], None]
"""Log one line to the task log."""
