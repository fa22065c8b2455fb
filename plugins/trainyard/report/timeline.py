"""The timeline of a run: a row for each process, its spans as columns of numbers. Pure functions of a run's events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trainyard.report import palette
from trainyard.report.formats import format_duration
from trainyard.schemas.runs.phases import is_in_step

SECOND = 1_000_000
SHOWN_STEPS = 24
"""The steps that the closest view of a training shows."""
_SUMMED = 4
"""The spans of a row that its summary names."""


@dataclass(frozen=True)
class Row:
    """The spans of one process of a task, by start: their names, starts and durations in microseconds.

    `omitted` counts, for the spans that stand for several, how many were not recorded one by one.
    """

    task: str
    process: str
    names: tuple[str, ...]
    starts: tuple[int, ...]
    durations: tuple[int, ...]
    omitted: dict[int, int]

    @property
    def summary(self) -> str:
        """The spans that take the longest in total, as text."""
        totals: dict[str, int] = defaultdict(int)
        for name, duration in zip(self.names, self.durations, strict=True):
            totals[name] += duration
        longest = sorted(totals.items(), key=lambda item: -item[1])[:_SUMMED]
        return ", ".join(f"{name} {format_duration(duration / SECOND)}" for name, duration in longest)


@dataclass(frozen=True)
class View:
    """A part of the timeline that a button shows: `begin` and `end` in seconds."""

    title: str
    begin: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """Rows over `seconds` of time, and the views from the whole run to a step."""

    rows: tuple[Row, ...]
    seconds: float
    views: tuple[View, ...]

    @property
    def activities(self) -> list[palette.Activity]:
        """The activities of the spans, in the order of the palette."""
        keys = {palette.activity_of(name).key for row in self.rows for name in row.names}
        return [activity for activity in palette.ACTIVITIES if activity.key in keys]

    @property
    def options(self) -> dict[str, Any]:
        """What the script of the timeline draws. Starts are differences to the start before, which are short."""
        names = list(dict.fromkeys(name for row in self.rows for name in row.names))
        numbers = {name: number for number, name in enumerate(names)}
        return {
            "names": names,
            "activities": [palette.activity_of(name).key for name in names],
            "seconds": self.seconds,
            "rows": [
                {
                    "label": f"{row.task} · {row.process}",
                    "names": [numbers[name] for name in row.names],
                    "starts": [row.starts[0], *(after - before for before, after in pairwise(row.starts))],
                    "durations": row.durations,
                    "omitted": row.omitted,
                }
                for row in self.rows
            ],
        }


def build_timeline(events: Sequence[dict[str, Any]]) -> Timeline | None:
    """Return the timeline of a run from its first span to its last; None without spans."""
    spans = _spans(events)
    if not spans:
        return None
    begin = min(event["ts"] for event in spans)
    end = max(event["ts"] + event["dur"] for event in spans)
    labels = _labels(events)
    by_row: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    first: dict[int, int] = {}
    for event in spans:
        by_row[event["pid"], event["tid"]].append(event)
        first[event["pid"]] = min(event["ts"], first.get(event["pid"], event["ts"]))
    order = sorted(by_row, key=lambda key: (first[key[0]], key))
    rows = tuple(_build_row(*labels[key], sorted(by_row[key], key=lambda e: e["ts"]), begin) for key in order)
    seconds = max(end - begin, 1) / SECOND
    return Timeline(rows, seconds, (View("Whole run", 0.0, seconds), *_build_views(events, begin)))


def find_steps(events: Sequence[dict[str, Any]]) -> tuple[int, int] | None:
    """Return the begin and the end of the first steps of the last epoch, in microseconds; None without steps."""
    spans = _spans(events)
    phases = [event for event in spans if is_in_step(event["name"])]
    if not phases:
        return None
    last = phases[-1]["ts"]
    ends = (event["ts"] + event["dur"] for event in spans if not is_in_step(event["name"]))
    begin = max((end for end in ends if end < last), default=phases[0]["ts"])
    epoch = [event for event in phases if event["ts"] >= begin]
    begin = epoch[0]["ts"]
    length = min(SHOWN_STEPS * _median_step(epoch), epoch[-1]["ts"] + epoch[-1]["dur"] - begin)
    return begin, int(begin + length)


def group_by_task(events: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return task -> its events, in the order of the first event of each."""
    names = {key[0]: task for key, (task, _) in _labels(events).items()}
    groups: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        groups.setdefault(names[event["pid"]], []).append(event)
    return groups


def sum_phases(events: Iterable[dict[str, Any]]) -> list[tuple[str, float, list[tuple[str, float, float]]]]:
    """Return each worker's name, its seconds in total, and (phase, seconds, share of the slowest worker's total)."""
    events = list(events)
    totals: dict[tuple[int, int], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for event in events:
        if event["ph"] == "C" and event["name"] == "seconds":
            for name, seconds in event["args"].items():
                totals[event["pid"], event["tid"]][name] += seconds or 0.0
    longest = max((sum(t.values()) for t in totals.values()), default=0.0) or 1.0
    labels = _labels(events)
    return [
        (
            labels[key][1],
            sum(t.values()),
            [(name, s, s / longest) for name, s in sorted(t.items(), key=lambda i: -i[1])],
        )
        for key, t in sorted(totals.items())
    ]


def find_clock_offsets(events: Sequence[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """Return the processes whose host's clock was off by more than its uncertainty, and by more than 1 ms.

    The times of their events are corrected already.

    Returns:
        For each process its name, the milliseconds that its clock was behind, and the uncertainty in milliseconds.
    """
    labels = _labels(events)
    clocks = [(labels[e["pid"], e["tid"]][1], e["args"]) for e in events if e["ph"] == "i" and e["name"] == "clock"]
    offsets = [(name, args["behind_ms"], args["error_ms"]) for name, args in clocks]
    return [(name, behind, error) for name, behind, error in offsets if abs(behind) > max(1.0, 2 * error)]


def _build_row(task: str, process: str, spans: Sequence[dict[str, Any]], begin: int) -> Row:
    omitted = {i: count for i, e in enumerate(spans) if (count := e.get("args", {}).get("omitted"))}
    return Row(
        task, process, tuple(e["name"] for e in spans), tuple(e["ts"] - begin for e in spans),
        tuple(e["dur"] for e in spans), omitted,
    )  # fmt: skip


def _build_views(events: Sequence[dict[str, Any]], begin: int) -> list[View]:
    """Return a view of each task, and of the steps of each training, by begin."""
    views = []
    for task, its_events in group_by_task(events).items():
        spans = _spans(its_events)
        if not spans:
            continue
        windows = [(task, (spans[0]["ts"], max(e["ts"] + e["dur"] for e in spans)))]
        if steps := find_steps(its_events):
            windows.append((f"{task}: steps of the last epoch", steps))
        views += [View(title, (start - begin) / SECOND, (end - begin) / SECOND) for title, (start, end) in windows]
    return sorted(views, key=lambda view: view.begin)


def _spans(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X"]


def _labels(events: Iterable[dict[str, Any]]) -> dict[tuple[int, int], tuple[str, str]]:
    names: dict[tuple[int, int], dict[str, str]] = defaultdict(dict)
    for event in events:
        if event["ph"] == "M":
            names[event["pid"], event["tid"]][event["name"]] = event["args"]["name"]
    return {key: (label["process_name"], label["thread_name"]) for key, label in names.items()}


def _median_step(spans: Sequence[dict[str, Any]]) -> float:
    starts = sorted(e["ts"] for e in spans if e["name"] == "forward" and e["tid"] == spans[0]["tid"])
    gaps = sorted(b - a for a, b in pairwise(starts))
    return float(gaps[len(gaps) // 2]) if gaps else float(spans[-1]["dur"] + 1)
