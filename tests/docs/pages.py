"""The blocks of code in the pages of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FILE = re.compile(r"# (dags/\S+\.py)(?::.*)?\n")


@dataclass(frozen=True)
class Block:
    """A block of code. `kind` is the text after its fence, or `indented` without a fence."""

    page: Path
    line: int
    kind: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that a comment in the first line names."""
        match = _FILE.match(self.text)
        return match[1] if match else None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def name_of(page: Path) -> str:
    """Return the path of a page in this checkout."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """Return all blocks of a page, from top to bottom."""
    tokens = MarkdownIt().parse(page.read_text())
    return [
        Block(page, token.map[0] + 1, token.info.strip() or "indented", token.content)
        for token in tokens
        if token.type in ("fence", "code_block") and token.map
    ]
