"""Read docstrings in Google's convention."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass

_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$")
_ENTRY = re.compile(r"^    ([\w*]+): (.*)$")
RESULT = "Returns (XCom):"


@dataclass(frozen=True)
class Docstring:
    """A docstring in parts.

    Attributes:
        paragraphs: The paragraphs before the first section, each on one line.
        entries: The text of each argument and attribute.
        returns: What is returned or yielded; "" if the paragraphs say it.
        raises: When each exception is raised, by its name.
    """

    paragraphs: tuple[str, ...]
    entries: Mapping[str, str]
    returns: str
    raises: Mapping[str, str]

    @property
    def text(self) -> str:
        """The paragraphs but for the one that describes the result."""
        return "\n\n".join(paragraph for paragraph in self.paragraphs if not paragraph.startswith(RESULT))


def read(value: object) -> Docstring:
    """Return the docstring of a class or function, in parts."""
    lines = (inspect.getdoc(value) or "").splitlines()
    begin = next((number for number, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    paragraphs = "\n".join(lines[:begin]).strip().split("\n\n")
    sections: dict[str, list[str]] = {}
    for line in lines[begin:]:
        if match := _SECTION.match(line):
            section = sections.setdefault(match[1], [])
        else:
            section.append(line)
    returned = [*sections.get("Returns", []), *sections.get("Yields", [])]
    return Docstring(
        tuple(" ".join(paragraph.split()) for paragraph in paragraphs),
        _read_entries([*sections.get("Args", []), *sections.get("Attributes", [])]),
        " ".join(" ".join(returned).split()),
        _read_entries(sections.get("Raises", [])),
    )


def _read_entries(lines: list[str]) -> dict[str, str]:
    """Return the text of each name."""
    entries: dict[str, str] = {}
    name = ""
    for line in lines:
        if match := _ENTRY.match(line):
            name = match[1]
            entries[name] = match[2]
        elif name and line.strip():
            entries[name] += f" {line.strip()}"
    return entries
