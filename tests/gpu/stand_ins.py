"""Stand-ins for what a node with only torch, pyarrow, pydantic, fsspec and safetensors lacks.

No test here is about these libraries; where they are installed, they are used.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class Retrying:
    """Call a function once, as tenacity does if it succeeds."""

    def __init__(self, **options: Any) -> None:
        pass

    def __call__(self, function: Callable[[], Any]) -> Any:
        return function()


class RetryError(Exception):
    """Is not raised."""


def install() -> None:
    """Make the modules importable that are not installed."""
    if _is_missing("tenacity"):
        tenacity: Any = ModuleType("tenacity")
        tenacity.Retrying, tenacity.RetryError, tenacity.RetryCallState = Retrying, RetryError, object
        for name in ("retry_if_exception", "stop_after_delay", "wait_random_exponential"):
            setattr(tenacity, name, lambda *args, **kwargs: None)
        sys.modules["tenacity"] = tenacity


def _is_missing(name: str) -> bool:
    return name not in sys.modules and importlib.util.find_spec(name) is None
