"""Draw timelines: a row for each process, a bar for each span. Pure functions of a run's events."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

WIDTH = 1000.0
ROW = 22
PALETTE = {
    "start Spark": "#9aa5b1",
    "import": "#b8a1d9",
    "import prepare": "#b8a1d9",
    "rendezvous": "#d9a1c8",
    "wait for slots": "#d9d2a1",
    "set up": "#b0a8a0",
    "read source": "#7fb3d5",
    "prepare": "#76c7c0",
    "write dataset": "#3d85b0",
    "worker group": "#cfd8dc",
    "script": "#8fb8a8",
    "steps": "#c3d3e0",
    "data wait": "#e6a23c",
    "copy": "#c78ae0",
    "forward": "#5b9bd5",
    "backward": "#2f6fab",
    "wait for communication": "#d1495b",
    "communication": "#e8959f",
    "wait for workers": "#a83a49",
    "optimizer": "#6a994e",
    "validate": "#8ab17d",
    "checkpoint": "#8d6e63",
    "find checkpoint": "#a1887f",
    "write model": "#bcaaa4",
    "evaluate": "#4caf7d",
    "predict": "#3f9c8f",
}
_STEP_PHASES = ("data wait", "copy", "forward", "backward", "wait for communication", "optimizer", "communication")


@dataclass(frozen=True)
class Bar:
    """One span: `x` and `width` in pixels; `lane` 1 is drawn as the lower half of the row."""

    name: str
    x: float
    width: float
    lane: int
    title: str


@dataclass(frozen=True)
class Row:
    """The spans of one process of a task."""

    task: str
    process: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Timeline:
    """Rows over `seconds` of time; `ticks` are (pixel, label)."""

    rows: tuple[Row, ...]
    seconds: float
    ticks: tuple[tuple[float, str], ...]

    @property
    def names(self) -> list[str]:
        """The names of the spans, in the order of the palette."""
        names = {bar.name for row in self.rows for bar in row.bars}
        return sorted(names, key=lambda name: list(PALETTE).index(name) if name in PALETTE else len(PALETTE))


def color_of(name: str) -> str:
    """Return the color of a span."""
    return PALETTE.get(name, "#90a4ae")


def draw_run(events: list[dict[str, Any]]) -> Timeline | None:
    """Return the timeline of a run from its first span to its last; None without spans."""
    return _draw(events, _spans(events))


def draw_steps(events: list[dict[str, Any]]) -> Timeline | None:
    """Return the timeline of the first 24 steps of the last epoch; None without steps."""
    phases = [e for e in _spans(events) if e["name"] in _STEP_PHASES]
    validations = [e["ts"] + e["dur"] for e in _spans(events) if e["name"] in ("validate", "rendezvous", "checkpoint")]
    if not phases:
        return None
    last = phases[-1]["ts"]
    begin = max((end for end in validations if end < last), default=phases[0]["ts"])
    epoch = [e for e in phases if e["ts"] >= begin]
    span = min(24 * _median_step(epoch), epoch[-1]["ts"] + epoch[-1]["dur"] - epoch[0]["ts"])
    return _draw(events, [e for e in epoch if e["ts"] < epoch[0]["ts"] + span])


def group_by_task(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return task -> its events, in the order of the first event of each."""
    names = {key[0]: task for key, (task, _) in _labels(events).items()}
    groups: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        groups.setdefault(names[event["pid"]], []).append(event)
    return groups


def sum_phases(events: list[dict[str, Any]]) -> list[tuple[str, float, list[tuple[str, float, float]]]]:
    """Return each worker's name, its seconds in total, and (phase, seconds, share of the slowest worker's total)."""
    totals: dict[tuple[int, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for event in events:
        if event["ph"] == "C" and event["name"] == "seconds":
            for name, seconds in event["args"].items():
                totals[event["pid"], event["tid"]][name] += seconds
    longest = max((sum(t.values()) for t in totals.values()), default=0.0)
    labels = _labels(events)
    return [
        (
            labels[key][1],
            sum(t.values()),
            [(name, s, s / longest) for name, s in sorted(t.items(), key=lambda i: -i[1])],
        )
        for key, t in sorted(totals.items())
    ]


def find_clock_offsets(events: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """Return the processes whose host's clock was off by more than its uncertainty, and by more than 1 ms.

    The times of their events are corrected already.

    Returns:
        For each process its name, the milliseconds that its clock was behind, and the uncertainty in milliseconds.
    """
    labels = _labels(events)
    clocks = [(labels[e["pid"], e["tid"]][1], e["args"]) for e in events if e["ph"] == "i" and e["name"] == "clock"]
    offsets = [(name, args["behind_ms"], args["error_ms"]) for name, args in clocks]
    return [(name, behind, error) for name, behind, error in offsets if abs(behind) > max(1.0, 2 * error)]


def _spans(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X"]


def _labels(events: list[dict[str, Any]]) -> dict[tuple[int, int], tuple[str, str]]:
    names: dict[tuple[int, int], dict[str, str]] = defaultdict(dict)
    for event in events:
        if event["ph"] == "M":
            names[event["pid"], event["tid"]][event["name"]] = event["args"]["name"]
    return {key: (label["process_name"], label["thread_name"]) for key, label in names.items()}


def _draw(events: list[dict[str, Any]], spans: list[dict[str, Any]]) -> Timeline | None:
    if not spans:
        return None
    begin = min(e["ts"] for e in spans)
    length = max(max(e["ts"] + e["dur"] for e in spans) - begin, 1)
    labels = _labels(events)
    by_row: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in spans:
        by_row[event["pid"], event["tid"]].append(event)
    order = sorted(by_row, key=lambda key: (min(e["ts"] for e in spans if e["pid"] == key[0]), key))
    rows = tuple(Row(*labels[key], _bars(by_row[key], begin, length)) for key in order)
    seconds = length / 1e6
    ticks = tuple((WIDTH * i / 8, format_duration(seconds * i / 8)) for i in range(9))
    return Timeline(rows, seconds, ticks)


def _bars(spans: list[dict[str, Any]], begin: int, length: int) -> tuple[Bar, ...]:
    bars: list[Bar] = []
    drawn: set[tuple[str, int]] = set()
    for event in spans:
        x, width = WIDTH * (event["ts"] - begin) / length, WIDTH * event["dur"] / length
        if width < 1 and (event["name"], int(x)) in drawn:
            continue
        drawn.add((event["name"], int(x)))
        lane = 1 if event["name"] == "communication" else 0
        title = f"{event['name']}: {format_duration(event['dur'] / 1e6)}"
        if omitted := event.get("args", {}).get("omitted"):
            title += f", {omitted:,} spans not recorded one by one"
        bars.append(Bar(event["name"], round(x, 2), round(max(width, 0.7), 2), lane, title))
    return tuple(bars)


def _median_step(spans: list[dict[str, Any]]) -> float:
    starts = sorted(e["ts"] for e in spans if e["name"] == "forward" and e["tid"] == spans[0]["tid"])
    gaps = sorted(b - a for a, b in pairwise(starts))
    return float(gaps[len(gaps) // 2]) if gaps else float(spans[-1]["dur"] + 1)


def format_duration(seconds: float) -> str:
    """Format a duration in minutes, seconds or milliseconds."""
    if seconds >= 100:
        return f"{seconds / 60:.1f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
