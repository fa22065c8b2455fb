"""The learning curves of a report."""

from __future__ import annotations

import math
from typing import Any

from trainyard.report import curves


def epochs(**figures: list[float]) -> list[dict[str, Any]]:
    names = {"epoch": [float(i + 1) for i in range(len(next(iter(figures.values()))))]} | figures
    rows = zip(*names.values(), strict=True)
    return [{"ph": "C", "name": "epoch", "args": dict(zip(names, row, strict=True))} for row in rows]


def test_a_run_without_epochs_has_no_charts() -> None:
    assert curves.draw_epochs([]) == []


def test_losses_share_a_chart_and_each_metric_has_its_own() -> None:
    events = epochs(loss=[2.0, 1.0], validation_loss=[3.0, 2.0], accuracy=[0.5, 0.75], rows_per_second=[1e6, 2e6])
    charts = {chart.title: [line.name for line in chart.lines] for chart in curves.draw_epochs(events)}
    assert charts == {
        "loss": ["loss", "validation loss"],
        "accuracy": ["accuracy"],
        "rows per second": ["rows per second"],
    }


def test_the_axis_spans_the_minimum_to_the_maximum() -> None:
    chart = curves.draw_epochs(epochs(loss=[1.0, 3.0, 5.0], rows_per_second=[1, 1, 1]))[0]
    assert (chart.low, chart.high, chart.epochs) == ("1", "5", 3)
    assert chart.lines[0].points == "0.0,150.0 150.0,75.0 300.0,0.0"
    assert chart.lines[0].last == "5"


def test_a_value_that_is_not_finite_is_a_gap() -> None:
    chart = curves.draw_epochs(epochs(loss=[1.0, 3.0, 5.0], auroc=[0.5, math.nan, 1.0], rows_per_second=[1, 1, 1]))[1]
    assert (chart.low, chart.high) == ("0.5", "1")
    assert chart.lines[0].points == "0.0,150.0 300.0,0.0"
