"""The type of a function that takes one line of log."""

from __future__ import annotations

from collections.abc import Callable

Log = Callable[[str], None]
"""Takes one line for the task log."""
