"""The timelines of a report: the rows, their columns of numbers, and the views."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.report import timeline

SECOND = 1_000_000


def process(tid: int, task: str, name: str, pid: int = 1) -> list[dict[str, Any]]:
    labels = {"process_name": task, "thread_name": name}
    return [{"ph": "M", "name": key, "pid": pid, "tid": tid, "args": {"name": value}} for key, value in labels.items()]


def span(name: str, start: float, seconds: float, tid: int = 0) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 1, "tid": tid, "ts": int(start * SECOND), "dur": int(seconds * SECOND)}


def test_a_run_without_spans_has_no_timeline() -> None:
    assert timeline.build_timeline([]) is None
    assert timeline.find_steps([]) is None


def test_the_spans_of_a_row_are_columns_of_numbers() -> None:
    events = [*process(0, "export", "driver"), span("write dataset", 105, 15), span("start Spark", 100, 5)]
    chart = timeline.build_timeline(events)
    assert chart is not None and chart.seconds == 20
    assert chart.options == {
        "names": ["start Spark", "write dataset"],
        "activities": ["start", "write"],
        "seconds": 20.0,
        "rows": [
            {"label": "export · driver", "names": [0, 1], "starts": [0, 5 * SECOND],
             "durations": (5 * SECOND, 15 * SECOND), "omitted": {}},
        ],
    }  # fmt: skip
    assert chart.rows[0].summary == "write dataset 15.0 s, start Spark 5.0 s"
    assert [activity.title for activity in chart.activities] == ["start up", "write"]


def test_views_are_the_run_its_tasks_and_the_steps_of_a_training() -> None:
    events = [*process(0, "train", "worker 0"), *process(0, "export", "driver", pid=2)]
    events += [span("forward", 10 + number, 0.5) for number in range(3)]
    events += [span("write dataset", 0, 8) | {"pid": 2}]
    chart = timeline.build_timeline(events)
    assert chart is not None
    assert [(view.title, view.begin, view.end) for view in chart.views] == [
        ("Whole run", 0.0, 12.5),
        ("export", 0.0, 8.0),
        ("train", 10.0, 12.5),
        ("train: steps of the last epoch", 10.0, 12.5),
    ]


def test_steps_are_those_after_the_last_validation() -> None:
    early = [span("forward", number, 0.5) for number in range(5)]
    late = [span("forward", 20 + number, 0.5) for number in range(50)]
    steps = timeline.find_steps(process(0, "train", "worker 0") + early + [span("validate", 10, 1)] + late)
    assert steps == (20 * SECOND, (20 + timeline.SHOWN_STEPS) * SECOND)


def test_phases_are_shares_of_the_slowest_worker() -> None:
    def counter(tid: int, **seconds: float) -> dict[str, Any]:
        return {"ph": "C", "name": "seconds", "pid": 1, "tid": tid, "args": seconds}

    events = process(0, "train", "worker 0") + process(1, "train", "worker 1")
    events += [counter(0, forward=1.0, backward=2.0), counter(0, forward=1.0), counter(1, forward=8.0)]
    assert timeline.sum_phases(events) == [
        ("worker 0", 4.0, [("forward", 2.0, 0.25), ("backward", 2.0, 0.25)]),
        ("worker 1", 8.0, [("forward", 8.0, 1.0)]),
    ]


def test_phases_that_took_no_time_have_no_share() -> None:
    events = [*process(0, "train", "worker 0"), {"ph": "C", "name": "seconds", "pid": 1, "tid": 0, "args": {"copy": 0}}]
    assert timeline.sum_phases(events) == [("worker 0", 0.0, [("copy", 0.0, 0.0)])]


def test_events_are_grouped_by_task_in_the_order_of_their_start() -> None:
    events = [*process(0, "b", "driver", 2), *process(0, "a", "driver", 1), span("import", 1, 1)]
    late = span("import", 0, 1) | {"pid": 2}
    assert timeline.group_by_task([late, *events]) == {"b": [late, *events[:2]], "a": events[2:]}


def test_steps_that_were_not_recorded_one_by_one_are_counted() -> None:
    steps = span("steps", 0, 2) | {"args": {"omitted": 870}}
    chart = timeline.build_timeline([*process(0, "train", "worker 0"), steps])
    assert chart and chart.options["rows"][0]["omitted"] == {0: 870}


def test_clock_offsets_above_their_uncertainty_are_reported() -> None:
    def clock(tid: int, behind: float, error: float) -> dict[str, Any]:
        offsets = {"behind_ms": behind, "error_ms": error}
        return {"ph": "i", "name": "clock", "pid": 1, "tid": tid, "args": offsets}

    events = [label for tid in range(3) for label in process(tid, "train", f"worker {tid}")]
    events += [clock(0, 0.02, 0.1), clock(1, -250.0, 0.2), clock(2, 3.0, 5.0)]
    assert timeline.find_clock_offsets(events) == [("worker 1", -250.0, 0.2)]


@pytest.mark.parametrize("name", ["an unheard-of span", "worker group"])
def test_a_span_without_an_activity_is_other(name: str) -> None:
    chart = timeline.build_timeline([*process(0, "train", "worker 0"), span(name, 0, 1)])
    assert chart and [activity.key for activity in chart.activities] == ["other"]
