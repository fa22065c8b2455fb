"""Import what a user names by its path."""

from __future__ import annotations

import importlib
from typing import Any

from trainyard.errors import TrainyardError


def import_object(kind: str, path: str) -> Any:
    """Return the object at `path`, "module:name".

    Args:
        kind: What it is, for the error: "recipe", "strategy".
        path: Its import path.

    Raises:
        TrainyardError: The module cannot be imported, or has no such name.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as error:
        raise TrainyardError(
            f"{kind} {path!r} cannot be imported: {type(error).__name__}: {error}. "
            f"Check that {module} defines {name}, and that its imports are installed where the workers run."
        ) from error
