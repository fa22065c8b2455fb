"""Sparklines: the last values of a metric as a line without axes. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.report.formats import format_number

WIDTH, HEIGHT = 100.0, 28.0


@dataclass(frozen=True)
class Sparkline:
    """The values of a metric, oldest first, at least one."""

    title: str
    values: Sequence[float]

    @property
    def last(self) -> str:
        """The last value as text."""
        return format_number(self.values[-1])

    @property
    def points(self) -> str:
        """The line as SVG coordinates; one value is a horizontal line."""
        values = list(self.values) if len(self.values) > 1 else [self.values[0]] * 2
        low, span = min(values), (max(values) - min(values)) or 1.0
        step = WIDTH / (len(values) - 1)
        level = HEIGHT / 2 if max(values) == low else HEIGHT
        return " ".join(f"{i * step:.1f},{level - HEIGHT * (value - low) / span:.1f}" for i, value in enumerate(values))

    @property
    def description(self) -> str:
        """The values as a sentence, for readers who do not see the line."""
        if len(self.values) == 1:
            return f"{self.title}: {self.last} in the only run that has it"
        low, high = format_number(min(self.values)), format_number(max(self.values))
        return f"{self.title} of the last {len(self.values)} runs: between {low} and {high}, last {self.last}"
