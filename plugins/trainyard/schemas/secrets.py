"""Find secrets among options: specs and reports are stored in clear text, and command lines are public."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"passw(or)?d|secret|token|accesskey|privatekey|apikey")
_VALUE = re.compile(r"(password|pwd)\s*=", re.IGNORECASE)
REDACTED = "redacted"
"""The type of a validation error whose input must not be repeated."""
REMEDY = (
    "what is written there can be read by others. Put it into a Hadoop credential store, and name that in conf as "
    "spark.hadoop.hadoop.security.credential.provider.path"
)


def find_secrets(options: Iterable[tuple[str, str]]) -> list[str]:
    """Return the names of options that hold a secret, by their name or, as in a JDBC URL, by their value."""
    return [name for name, value in options if _NAME.search(_letters(name)) or _VALUE.search(str(value))]


def _letters(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())
