"""Runs side by side: options, metrics and curves. Pure functions."""

from __future__ import annotations

from tests.plugins.report import example
from trainyard.pages import comparison
from trainyard.pages.comparison import Line

DIRECTORY = "file:///runs/digits/r1"


def test_options_are_flat() -> None:
    assert comparison.flatten({"a": 1, "b": {"c": 2, "d": {"e": [3]}}, "f": {}}) == {
        "a": 1, "b.c": 2, "b.d.e": [3], "f": {},
    }  # fmt: skip


def test_only_options_that_differ_are_shown() -> None:
    first = {"train": {"options.epochs": 8, "seed": 0, "strategy.name": "allreduce"}}
    second = {"train": {"options.epochs": 9, "seed": 0, "strategy.name": "diloco", "mix": []}, "predict": {"top": 3}}
    assert comparison.find_differences([first, second]) == [
        Line("train", "options.epochs", ("8", "9")),
        Line("train", "strategy.name", ("allreduce", "diloco")),
        Line("train", "mix", ("–", "[]")),
        Line("predict", "top", ("–", "3")),
    ]
    assert comparison.find_differences([first, first]) == []


def test_metrics_have_intervals_and_those_of_evaluations_come_first() -> None:
    records = example.build_records(DIRECTORY)
    lines = comparison.collect_metrics([records, records[:2]])
    assert lines[0] == Line("evaluate", "accuracy", ("0.9947 (0.9833 to 1)", "–"))
    assert Line("train", "accuracy", ("0.9857", "0.9857")) in lines
    assert Line("", "duration", ("1 min 23 s", "42.0 s")) in lines
    assert lines[-1] == Line("predict", "duration", ("15.0 s", "–"))


def test_a_run_without_records_has_no_metrics() -> None:
    records = example.build_records(DIRECTORY)
    assert comparison.collect_metrics([records, []])[0].cells == ("0.9947 (0.9833 to 1)", "–")


def test_the_curves_of_runs_lie_over_each_other() -> None:
    short, long = ([{"epoch": n + 1, "loss": 1.0 / (n + scale)} for n in range(scale)] for scale in (1, 3))
    [chart] = comparison.overlay([{"train": short}, {}, {"train": long}])
    assert (chart.title, chart.places) == ("Loss", ("1", "2", "3"))
    assert [(line.name, line.color) for line in chart.series] == [("Run 1", "run-0"), ("Run 3", "run-2")]
    assert chart.series[0].values == (1.0, None, None)


def test_the_curves_of_several_trainings_are_named_by_task() -> None:
    epochs = [{"epoch": 1, "loss": 1.0}]
    charts = comparison.overlay([{"teacher": epochs, "student": epochs}])
    assert [chart.title for chart in charts] == ["teacher: Loss", "student: Loss"]
