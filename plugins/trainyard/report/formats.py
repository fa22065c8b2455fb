"""Format numbers, durations and the names of runs for readers. Pure functions."""

from __future__ import annotations

import math
import re
from typing import Any

_KINDS = "manual|scheduled|backfill|asset_triggered"
_RUN = re.compile(rf"(?P<kind>{_KINDS})__(?P<date>\d{{4}}-\d\d-\d\d)T(?P<time>\d\d:\d\d).*")


def format_duration(seconds: float) -> str:
    """Format a duration with the two largest of its units, for example `1 min 49 s`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"


def format_number(value: Any) -> str:
    """Format a number with four digits, and thousands separators from 1,000; return any other value as text."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    return f"{value:,.0f}" if math.isfinite(value) and abs(value) >= 1000 else f"{value:.4g}"


def format_bytes(count: float) -> str:
    """Format a number of bytes with a binary unit, for example `1.4 MiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if unit != "bytes" else f"{count:,.0f} bytes"
        count /= 1024
    return f"{count:,.1f} TiB"


def describe_run(run_id: str) -> str:
    """Return a name of a run for readers, for example `Manual run, 2026-11-24 10:00`; other ids stay as they are."""
    match = _RUN.fullmatch(run_id)
    if match is None:
        return run_id
    return f"{match['kind'].replace('_', ' ').capitalize()} run, {match['date']} {match['time']}"


def abbreviate_run(run_id: str) -> str:
    """Return a name of a run for the axis of a chart: its month, day and time, or the end of its id."""
    match = _RUN.fullmatch(run_id)
    return f"{match['date'][5:]} {match['time']}" if match else run_id[-12:]


def format_hours(value: float) -> str:
    """Format resource-hours with three digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
