"""The learning curves of a report."""

from __future__ import annotations

import math
from typing import Any

from trainyard.report import curves


def epochs(**figures: list[float]) -> list[dict[str, Any]]:
    names = {"epoch": [float(i + 1) for i in range(len(next(iter(figures.values()))))]} | figures
    return [dict(zip(names, row, strict=True)) for row in zip(*names.values(), strict=True)]


def test_a_run_without_epochs_has_no_charts() -> None:
    assert curves.build_charts(curves.read_points([])) == []


def test_of_an_epoch_that_ran_twice_the_last_report_counts() -> None:
    reports = [{"epoch": 2, "loss": 9.0}, {"epoch": 1, "loss": 3.0}, {"epoch": 2, "loss": 2.0}]
    events = [{"ph": "C", "name": "epoch", "args": args} for args in reports]
    assert curves.read_points(events) == [{"epoch": 1, "loss": 3.0}, {"epoch": 2, "loss": 2.0}]


def test_curves_are_by_step_where_there_are_no_epochs() -> None:
    events = [{"ph": "C", "name": "step", "args": {"step": step, "loss": 3.0 - step}} for step in (0, 2)]
    points = curves.read_points(events)
    assert curves.build_charts(points)[0].description == "Loss by step. training: between 1 and 3; last 1 (step 2)"
    assert (curves.build_table(points).axis, curves.build_table(points).rows) == ("step", ((0, ("3",)), (2, ("1",))))
    epoch = {"ph": "C", "name": "epoch", "args": {"epoch": 1, "loss": 2.0}}
    assert curves.read_points([*events, epoch]) == [{"epoch": 1, "loss": 2.0}]


def test_a_value_that_was_not_finite_is_a_gap_of_the_chart_and_nan_in_the_table() -> None:
    reports = [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": None}]
    measured = curves.read_points([{"ph": "C", "name": "epoch", "args": args} for args in reports])
    assert curves.build_charts(measured)[0].series[0].values == (2.0, None)
    assert curves.build_table(measured).rows == ((1, ("2",)), (2, ("nan",)))


def test_losses_share_a_chart_and_each_metric_has_its_own() -> None:
    measured = epochs(loss=[2.0, 1.0], validation_loss=[3.0, 2.0], accuracy=[0.5, 0.75], rows_per_second=[1e6, 2e6])
    charts = {chart.title: [line.name for line in chart.series] for chart in curves.build_charts(measured)}
    assert charts == {
        "Loss": ["training", "validation"],
        "Accuracy": ["accuracy"],
        "Rows per second": ["rows per second"],
    }


def test_the_losses_of_each_head_share_a_chart() -> None:
    figures = {"loss": [2.0], "kind/loss": [1.0], "kind/validation_loss": [1.5], "kind/accuracy": [0.5]}
    charts = {chart.title: [line.name for line in chart.series] for chart in curves.build_charts(epochs(**figures))}
    assert charts == {
        "Loss": ["training"],
        "Loss of kind": ["training", "validation"],
        "Kind/accuracy": ["kind/accuracy"],
    }


def test_a_speed_that_stays_the_same_has_no_chart() -> None:
    measured = epochs(loss=[2.0, 1.0], bytes_per_step=[7.0, 7.0])
    assert [chart.title for chart in curves.build_charts(measured)] == ["Loss"]


def test_the_best_epoch_is_marked() -> None:
    measured = epochs(loss=[3.0, 1.0, 2.0])
    assert curves.build_charts(measured, best_epoch=2)[0].best == 1
    assert curves.build_charts(measured, best_epoch=9)[0].best is None
    assert curves.build_charts(measured)[0].best is None


def test_a_value_that_is_not_finite_is_a_gap() -> None:
    chart = curves.build_charts(epochs(auroc=[0.5, math.nan, 1.0]))[0]
    assert chart.series[0].values == (0.5, None, 1.0)


def test_a_chart_has_a_description() -> None:
    chart = curves.build_charts(epochs(loss=[3.0, 1.0, math.inf]))[0]
    assert chart.description == "Loss by epoch. training: between 1 and 3; last 1 (epoch 2)"
    assert "no values" in curves.build_charts(epochs(loss=[math.nan]))[0].description


def test_the_table_has_a_row_for_each_epoch() -> None:
    table = curves.build_table(epochs(loss=[2.0, 1.0], rows_per_second=[9000.4, 8000.4]))
    assert table.columns == ("loss", "rows per second")
    assert table.rows == ((1, ("2", "9,000")), (2, ("1", "8,000")))
