"""The blocks of code in the pages of the documentation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_FILE = re.compile(r"# (dags/\S+\.py)(?::.*)?\n")


@dataclass(frozen=True)
class Block:
    """A block, and what its fence says it is: `indented` without one."""

    page: Path
    line: int
    kind: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that the block is, named by a comment in its first line."""
        found = _FILE.match(self.text)
        return found[1] if found else None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """All of a page, from top to bottom."""
    tokens = MarkdownIt().parse(page.read_text())
    return [
        Block(page, token.map[0] + 1, token.info.strip() or "indented", token.content)
        for token in tokens
        if token.type in ("fence", "code_block") and token.map
    ]
