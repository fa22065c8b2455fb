"""Draw learning curves: lines of the metrics of each epoch. Pure functions of a run's events."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 300.0, 150.0
COLORS = ("#2f6fab", "#d1495b", "#6a994e", "#e6a23c")


@dataclass(frozen=True)
class Line:
    """A line of a chart: `points` are SVG coordinates, `last` is the last value as text."""

    name: str
    color: str
    points: str
    last: str


@dataclass(frozen=True)
class Chart:
    """Lines over epochs 1 to `epochs`; `low` and `high` label the ends of the value axis."""

    title: str
    lines: tuple[Line, ...]
    epochs: int
    low: str
    high: str


def draw_epochs(events: list[dict[str, Any]]) -> list[Chart]:
    """Return one chart for the losses, one for the throughput, and one for each metric.

    A restarted worker group may report an epoch again; the last report is drawn.
    """
    by_epoch = {e["args"]["epoch"]: e["args"] for e in events if e["ph"] == "C" and e["name"] == "epoch"}
    epochs = [by_epoch[epoch] for epoch in sorted(by_epoch)]
    if not epochs:
        return []
    losses = [name for name in ("loss", "validation_loss") if name in epochs[0]]
    others = [name for name in epochs[0] if name not in (*losses, "epoch", "rows_per_second")]
    groups = [("loss", losses), *((name, [name]) for name in others), ("rows per second", ["rows_per_second"])]
    return [draw_chart(title, names, epochs) for title, names in groups]


def draw_chart(title: str, names: list[str], epochs: list[dict[str, float]]) -> Chart:
    """Return a chart with a line for each of `names`; a value that is not finite is a gap."""
    values = [epoch[name] for epoch in epochs for name in names if math.isfinite(epoch[name])]
    low, high = min(values, default=0.0), max(values, default=0.0)
    span = (high - low) or 1.0
    step = WIDTH / max(len(epochs) - 1, 1)
    lines = []
    for name, color in zip(names, COLORS, strict=False):
        finite = [(i, epoch[name]) for i, epoch in enumerate(epochs) if math.isfinite(epoch[name])]
        points = [(i * step, HEIGHT - HEIGHT * (value - low) / span) for i, value in finite]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        lines.append(Line(name.replace("_", " "), color, path, _number(epochs[-1][name])))
    return Chart(title, tuple(lines), len(epochs), _number(low), _number(high))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
