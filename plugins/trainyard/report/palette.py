"""The colors of charts: one meaning a color, after Okabe and Ito, which people with color blindness can tell apart."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.schemas.runs import phases


@dataclass(frozen=True)
class Activity:
    """What a process does, with its color in light and in dark mode. `schemas.runs.phases` says which phases it has."""

    key: phases.Activity
    title: str
    light: str
    dark: str


ACTIVITIES = (
    Activity("start", "start up", "#9aa5b1", "#7d8a98"),
    Activity("data", "read and prepare data", "#009e73", "#14b88a"),
    Activity("write", "write", "#8a8420", "#b5ae3c"),
    Activity("data-wait", "wait for data", "#e69f00", "#f0b429"),
    Activity("forward", "forward", "#56b4e9", "#7cc8f3"),
    Activity("backward", "backward", "#0072b2", "#2f8fd0"),
    Activity("optimizer", "optimizer", "#5b4bb5", "#8f80e8"),
    Activity("communication", "communication", "#f0e442", "#f0e442"),
    Activity("worker-wait", "wait for workers", "#d55e00", "#ee7a24"),
    Activity("score", "validate, evaluate, predict", "#cc79a7", "#e094bd"),
    Activity("other", "other", "#d3dae1", "#41536a"),
)
"""In the order of legends."""

SERIES = (
    ("train", "#0072b2", "#56b4e9"),
    ("validation", "#b5578c", "#e094bd"),
    ("run-0", "#0072b2", "#56b4e9"),
    ("run-1", "#d55e00", "#ee8a45"),
    ("run-2", "#008060", "#2cc79b"),
    ("run-3", "#b5578c", "#e094bd"),
    ("run-4", "#8a6100", "#e6b040"),
    ("run-5", "#5b4bb5", "#a598f0"),
)
"""Lines of charts: (name, light, dark)."""
RUN_COLORS = sum(name.startswith("run-") for name, _, _ in SERIES)

_BY_KEY = {activity.key: activity for activity in ACTIVITIES}


def activity_of(span: str) -> Activity:
    """Return the activity that a span belongs to."""
    return _BY_KEY[phases.find_activity(span)]


def line_style(number: int) -> dict[str, str]:
    """Return the color and the dash of one of several lines: those after the last color repeat it with dashes."""
    dash = ("solid", "dashed", "dotted")[min(number // RUN_COLORS, 2)]
    return {"color": f"run-{number % RUN_COLORS}", "dash": dash}


def css_variables() -> str:
    """Return a CSS rule that defines each color as a variable: `--activity-forward`, `--series-train` and so on."""
    colors = [(f"activity-{one.key}", one.light, one.dark) for one in ACTIVITIES]
    colors += [(f"series-{name}", light, dark) for name, light, dark in SERIES]
    return f":root {{ {' '.join(f'--{name}: light-dark({light}, {dark});' for name, light, dark in colors)} }}"
