"""Sparklines. Pure functions."""

from __future__ import annotations

import pytest

from trainyard.pages.sparkline import Sparkline


@pytest.mark.parametrize(
    ("values", "points"),
    [
        ([1.0, 3.0, 2.0], "0.0,28.0 50.0,0.0 100.0,14.0"),
        ([5.0], "0.0,14.0 100.0,14.0"),
        ([5.0, 5.0], "0.0,14.0 100.0,14.0"),
    ],
)
def test_the_line_spans_the_height_unless_the_values_are_the_same(values: list[float], points: str) -> None:
    assert Sparkline("accuracy", values).points == points


def test_a_sparkline_has_a_description() -> None:
    line = Sparkline("accuracy", [0.5, 0.75, 0.7])
    assert line.description == "accuracy of the last 3 runs: between 0.5 and 0.75, last 0.7"
    assert Sparkline("accuracy", [0.5]).description == "accuracy: 0.5 in the only run that has it"
