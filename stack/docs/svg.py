"""Draw boxes, lines of text and arrows as SVG that is readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

STYLE = """
text { font: 13px -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; fill: #1f2933 }
text.title { font-weight: 600 }
text.note { font-size: 11.5px; fill: #52606d }
.page { fill: #ffffff; stroke: #d5dbe1 }
.group { fill: #f4f6f8; stroke: #b6c0ca; stroke-dasharray: 5 4 }
.box { fill: #ffffff; stroke: #7b8794 }
.data { fill: #e3f0ea; stroke: #4f9d78 }
.work { fill: #e4ecfa; stroke: #5b83cf }
.lost { fill: #f9e3e0; stroke: #c8594b }
.arrow { fill: none; stroke: #52606d; stroke-width: 1.4 }
.head { fill: #52606d }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e9ee } text.note { fill: #a8b3bf } .page { fill: #14181c; stroke: #343c45 }
  .group { fill: #1b2127; stroke: #4a5561 } .box { fill: #22292f; stroke: #6d7a87 }
  .data { fill: #1c3328; stroke: #4f9d78 }
  .work { fill: #1e2b45; stroke: #5b83cf } .lost { fill: #43231f; stroke: #c8594b } .arrow { stroke: #a8b3bf }
  .head { fill: #a8b3bf }
}
"""
LINE = 17


@dataclass(frozen=True)
class Box:
    """A rectangle with a title and lines of notes.

    Attributes:
        x: Its left edge.
        y: Its upper edge.
        width: Its width.
        height: Its height.
        title: The first line.
        notes: Further lines, smaller.
        kind: `group`, `box`, `data`, `work` or `lost`, which selects the colors.
    """

    x: float
    y: float
    width: float
    height: float
    title: str = ""
    notes: Sequence[str] = ()
    kind: str = "box"

    def draw(self) -> str:
        """Return the elements of the box."""
        rectangle = (
            f'<rect class="{self.kind}" x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="6"/>'
        )
        lines = [("title", self.title)] * bool(self.title) + [("note", note) for note in self.notes]
        top = self.y + 20 if self.kind == "group" else self.y + (self.height - LINE * len(lines)) / 2 + 13
        center = self.x + self.width / 2
        return "\n".join(
            [rectangle, *(_text(center, top + LINE * number, kind, text) for number, (kind, text) in enumerate(lines))]
        )


@dataclass(frozen=True)
class Arrow:
    """A line through points with a head at its end, and a label beside its middle."""

    points: Sequence[tuple[float, float]]
    label: str = ""
    below: bool = False

    def draw(self) -> str:
        """Return the elements of the arrow."""
        path = " ".join(f"{x},{y}" for x, y in self.points)
        line = f'<polyline class="arrow" points="{path}" marker-end="url(#head)"/>'
        if not self.label:
            return line
        middle = len(self.points) // 2
        (x1, y1), (x2, y2) = self.points[middle - 1], self.points[middle]
        return f"{line}\n{_text((x1 + x2) / 2, (y1 + y2) / 2 + (16 if self.below else -6), 'note', self.label)}"


@dataclass(frozen=True)
class Note:
    """A line of text with its middle, or its left end, at a point."""

    x: float
    y: float
    text: str
    kind: str = "note"
    anchor: str = "middle"

    def draw(self) -> str:
        """Return the element of the text."""
        return _text(self.x, self.y, self.kind, self.text, self.anchor)


Part = Box | Arrow | Note


def draw(width: int, height: int, title: str, parts: Sequence[Part]) -> str:
    """Return a drawing; `title` is its text for those who do not see it."""
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>'
    )
    body = "\n".join(part.draw() for part in parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{STYLE}</style>\n{head}\n'
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>\n{body}\n</svg>\n'
    )


def _text(x: float, y: float, kind: str, text: str, anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
