"""Name a version of a dataset or a model: `clicks/dataset@12`, `clicks/champion@1a2b`.

The version of a dataset is its number; that of a model is the sha256 of its weights, or the beginning of it. A name
without a version is the newest one.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"(?P<name>.*[^/@])@(?P<version>[0-9a-f]{1,64})/?", re.DOTALL)


def split_version(name: str) -> tuple[str, str | None]:
    """Return a name or URI without its version, and the version; None if it names none."""
    match = _NAME.fullmatch(name)
    return (match["name"], match["version"]) if match else (name, None)


def is_mistaken(name: str) -> bool:
    """Return whether the last part of a name has an @ behind which no version is."""
    return "@" in name.rstrip("/").rpartition("/")[2] and split_version(name)[1] is None


def add_version(name: str, version: str) -> str:
    """Return a name or URI with the version of a model: the first 16 digits of `version`, as its folder has."""
    return f"{name.rstrip('/')}@{version[:16]}"
