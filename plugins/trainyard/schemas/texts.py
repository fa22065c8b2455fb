"""Read the texts below the fields of a class, and show them in its docstring.

The text of a field stands once, as a string below it. It is read from the source of the class when something shows it:
`help`, the reference, an error of the estimator. Jobs do not read it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

_SECTIONS = ("Args:", "Attributes:", "Returns:", "Raises:")


@cache
def read_own(owner: type) -> Mapping[str, str]:
    """Return the texts below the fields in the body of a class, by field; empty if its source is not available."""
    try:
        [body] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in pairwise(getattr(body, "body", ()))
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def read_all(owner: type) -> dict[str, str]:
    """Return the texts below the fields of a class and of its bases."""
    return {name: text for base in reversed(owner.__mro__) for name, text in read_own(base).items()}


def complete_doc(section: str, read: Callable[[Any], Mapping[str, str]]) -> property:
    """Return the `__doc__` of a metaclass whose classes have texts in their docstrings, read when a docstring is.

    `help` takes only a string from the class itself, so no object in its place would do.

    Args:
        section: The heading of the texts, `Args:` or `Attributes:`.
        read: Returns the texts of a class by name.
    """

    def get(cls: Any) -> str | None:
        written: str | None = vars(cls).get("__doc__")
        entries = read(cls)
        return add_entries(written or "", section, entries) if entries else written

    return property(get)


def add_entries(doc: str, section: str, entries: Mapping[str, str]) -> str:
    """Return a docstring with entries at the beginning of a section, which is added if there is none.

    Args:
        doc: The docstring.
        section: The heading of the section.
        entries: The texts by name. Those of names that have an entry already are left out.
    """
    lines = inspect.cleandoc(doc).splitlines()
    written = {line.partition(":")[0].strip() for line in lines}
    texts = [line for name, text in entries.items() if name not in written for line in _wrap(name, text)]
    if section in lines:
        begin = lines.index(section)
        return "\n".join([*lines[: begin + 1], *texts, *lines[begin + 1 :]])
    after = next((number for number, line in enumerate(lines) if line in _SECTIONS), len(lines))
    gap = [""] if after == len(lines) and lines else []
    rest = ["", *lines[after:]] if after < len(lines) else []
    return "\n".join([*lines[:after], *gap, section, *texts, *rest])


def _wrap(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        f"{name}: {text}", 116, initial_indent=" " * 4, subsequent_indent=" " * 8, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
