"""Numbers, durations and names for readers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trainyard.report import formats


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"), (0.0042, "4.2 ms"), (0.9994, "999 ms"), (0.9999, "1.0 s"), (16.44, "16.4 s"), (59.99, "1 min"),
        (109.3, "1 min 49 s"), (3599.9, "1 h"), (7500, "2 h 5 min"), (360000, "100 h"),
    ],
)  # fmt: skip
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert formats.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123456, "0.1235"), (8369.35, "8,369"), (-1500, "-1,500"), (math.nan, "nan"), (True, "True"), ("Ur", "Ur")],
)
def test_a_number_has_four_digits(value: Any, text: str) -> None:
    assert formats.format_number(value) == text


@pytest.mark.parametrize(("count", "text"), [(900, "900 bytes"), (497_664, "486 KiB"), (3 << 40, "3.0 TiB")])
def test_bytes_have_a_unit(count: float, text: str) -> None:
    assert formats.format_bytes(count) == text


@pytest.mark.parametrize(
    ("run_id", "name", "short"),
    [
        ("manual__2026-11-24T23:14:00.893761+00:00", "Manual run, 2026-11-24 23:14", "11-24 23:14"),
        ("scheduled__2026-11-24T10:00:00+00:00", "Scheduled run, 2026-11-24 10:00", "11-24 10:00"),
        ("asset_triggered__2026-11-24T10:00:00+00:00_ab12", "Asset triggered run, 2026-11-24 10:00", "11-24 10:00"),
        ("my own run, of today", "my own run, of today", "un, of today"),
        ("scheduled__today", "scheduled__today", "duled__today"),
    ],
)
def test_a_run_has_a_name_for_readers(run_id: str, name: str, short: str) -> None:
    assert formats.describe_run(run_id) == name
    assert formats.abbreviate_run(run_id).strip() == short
