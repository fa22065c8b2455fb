"""Learning curves: figures of each epoch as lines to draw. Pure functions of a run's events."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 300.0, 150.0
COLORS = ("#2f6fab", "#d1495b", "#6a994e", "#e6a23c")


@dataclass(frozen=True)
class Line:
    name: str
    color: str
    points: str
    last: str


@dataclass(frozen=True)
class Chart:
    """Lines over epochs 1 to `epochs`; `low` and `high` label the ends of the value axis. NaN is a gap."""

    title: str
    lines: tuple[Line, ...]
    epochs: int
    low: str
    high: str


def of_epochs(events: list[dict[str, Any]]) -> list[Chart]:
    """One chart for the losses, one for the throughput, and one for each metric."""
    told = {e["args"]["epoch"]: e["args"] for e in events if e["ph"] == "C" and e["name"] == "epoch"}
    found = [told[epoch] for epoch in sorted(told)]  # a gang that starts again may tell of an epoch again
    if not found:
        return []
    losses = [name for name in ("loss", "validation_loss") if name in found[0]]
    others = [name for name in found[0] if name not in (*losses, "epoch", "rows_per_second")]
    groups = [("loss", losses), *((name, [name]) for name in others), ("rows per second", ["rows_per_second"])]
    return [chart(title, names, found) for title, names in groups]


def chart(title: str, names: list[str], epochs: list[dict[str, float]]) -> Chart:
    """The figures `names` of each epoch as lines; one that is not finite is a gap."""
    values = [epoch[name] for epoch in epochs for name in names if math.isfinite(epoch[name])]
    low, high = min(values, default=0.0), max(values, default=0.0)
    span = (high - low) or 1.0
    step = WIDTH / max(len(epochs) - 1, 1)
    lines = []
    for name, color in zip(names, COLORS, strict=False):
        known = [(i, epoch[name]) for i, epoch in enumerate(epochs) if math.isfinite(epoch[name])]
        points = [(i * step, HEIGHT - HEIGHT * (value - low) / span) for i, value in known]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        lines.append(Line(name.replace("_", " "), color, path, _number(epochs[-1][name])))
    return Chart(title, tuple(lines), len(epochs), _number(low), _number(high))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
