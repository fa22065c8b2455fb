"""The timelines of a report: the position of each span, and the spans that are left out."""

from __future__ import annotations

from typing import Any

from trainyard.report import timeline

SECOND = 1_000_000


def process(tid: int, task: str, name: str, pid: int = 1) -> list[dict[str, Any]]:
    labels = {"process_name": task, "thread_name": name}
    return [{"ph": "M", "name": key, "pid": pid, "tid": tid, "args": {"name": value}} for key, value in labels.items()]


def span(name: str, start: float, seconds: float, tid: int = 0) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 1, "tid": tid, "ts": int(start * SECOND), "dur": int(seconds * SECOND)}


def test_a_run_without_spans_has_no_timeline() -> None:
    assert timeline.draw_run([]) is None
    assert timeline.draw_steps([]) is None


def test_a_bar_has_the_position_of_its_span_in_the_run() -> None:
    events = [*process(0, "export", "driver"), span("start Spark", 100, 5), span("write dataset", 105, 15)]
    chart = timeline.draw_run(events)
    assert chart is not None and chart.seconds == 20
    (row,) = chart.rows
    assert (row.task, row.process) == ("export", "driver")
    assert [(bar.x, bar.width) for bar in row.bars] == [(0, 250), (250, 750)]
    assert chart.ticks[0] == (0, "0.0 ms") and chart.ticks[-1] == (timeline.WIDTH, "20.0 s")


def test_spans_below_a_pixel_share_a_bar() -> None:
    events = [*process(0, "train", "worker 0"), span("forward", 0, 1000)]
    events += [span("data wait", 500 + number / 1000, 0.0005) for number in range(100)]
    chart = timeline.draw_run(events)
    assert chart is not None and len(chart.rows[0].bars) == 2


def test_communication_is_drawn_below_the_backward_pass_that_it_overlaps() -> None:
    chart = timeline.draw_run(
        [*process(0, "train", "worker 0"), span("backward", 0, 1), span("communication", 0.5, 0.4)]
    )
    assert chart is not None
    assert {bar.name: bar.lane for bar in chart.rows[0].bars} == {"backward": 0, "communication": 1}


def test_steps_are_those_after_the_last_validation() -> None:
    early = [span("forward", number, 0.5) for number in range(5)]
    late = [span("forward", 20 + number, 0.5) for number in range(5)]
    chart = timeline.draw_steps(process(0, "train", "worker 0") + early + [span("validate", 10, 1)] + late)
    assert chart is not None and len(chart.rows[0].bars) == 5


def test_phases_are_shares_of_the_slowest_worker() -> None:
    def counter(tid: int, **seconds: float) -> dict[str, Any]:
        return {"ph": "C", "name": "seconds", "pid": 1, "tid": tid, "args": seconds}

    events = process(0, "train", "worker 0") + process(1, "train", "worker 1")
    events += [counter(0, forward=1.0, backward=2.0), counter(0, forward=1.0), counter(1, forward=8.0)]
    assert timeline.sum_phases(events) == [
        ("worker 0", 4.0, [("forward", 2.0, 0.25), ("backward", 2.0, 0.25)]),
        ("worker 1", 8.0, [("forward", 8.0, 1.0)]),
    ]


def test_events_are_grouped_by_task_in_the_order_of_their_start() -> None:
    events = [*process(0, "b", "driver", 2), *process(0, "a", "driver", 1), span("import", 1, 1)]
    late = span("import", 0, 1) | {"pid": 2}
    assert timeline.group_by_task([late, *events]) == {"b": [late, *events[:2]], "a": events[2:]}


def test_a_bar_of_omitted_steps_has_their_number_in_its_title() -> None:
    steps = span("steps", 0, 2) | {"args": {"omitted": 870}}
    chart = timeline.draw_run([*process(0, "train", "worker 0"), steps])
    assert chart and chart.rows[0].bars[0].title == "steps: 2.0 s, 870 spans not recorded one by one"


def test_clock_offsets_above_their_uncertainty_are_reported() -> None:
    def clock(tid: int, behind: float, error: float) -> dict[str, Any]:
        offsets = {"behind_ms": behind, "error_ms": error}
        return {"ph": "i", "name": "clock", "pid": 1, "tid": tid, "args": offsets}

    events = [label for tid in range(3) for label in process(tid, "train", f"worker {tid}")]
    events += [clock(0, 0.02, 0.1), clock(1, -250.0, 0.2), clock(2, 3.0, 5.0)]
    assert timeline.find_clock_offsets(events) == [("worker 1", -250.0, 0.2)]
