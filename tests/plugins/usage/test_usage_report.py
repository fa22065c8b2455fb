"""The arithmetic of the usage report: parts add up, busy <= allocated <= single-application baseline."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.schemas.specs.task_key import TaskKey
from trainyard.usage import usage_report
from trainyard.usage.resource_usage import ResourceUsage
from trainyard.usage.usage_report import ApplicationUsage, ResourceHours, RunUsage, UsageLine

MONDAY = 1795392000.0
"""2026-11-23T00:00Z, a Monday."""
QUEUES = ("etl", "train")


def usage(task: str = "train", **fields: float | str) -> ResourceUsage:
    task_key = TaskKey(dag_id="digits", run_id="r1", task_id=task, directory="file:///runs/digits/r1")
    defaults = {
        "started_at": MONDAY, "seconds": 3600.0, "busy_seconds": 1800.0, "core_seconds": 7200.0, "queue": "train",
    }  # fmt: skip
    return ResourceUsage.model_validate({"task_key": task_key, "application": "a1"} | defaults | fields)


def amounts(maximum: float = 1e7) -> st.SearchStrategy[float]:
    return st.floats(0, maximum, allow_subnormal=False)


usages = st.builds(
    usage, started_at=st.floats(MONDAY, MONDAY + 1e6), seconds=st.floats(1, 1e6), busy_seconds=amounts(2e6),
    core_seconds=amounts(), memory_mb_seconds=amounts(), gpu_seconds=amounts(), queue=st.sampled_from(QUEUES),
)  # fmt: skip
runs = st.builds(
    RunUsage, dag_id=st.sampled_from(["digits", "penguins"]), run_id=st.text(max_size=3),
    applications=st.lists(st.builds(usage_report.convert_usage, usages), min_size=1, max_size=6).map(tuple),
)  # fmt: skip


def close(amount: ResourceHours) -> object:
    return pytest.approx(astuple(amount), rel=1e-9, abs=1e-9)


def add_up(lines: list[UsageLine], figure: str) -> tuple[float, ...]:
    return astuple(sum((getattr(line, figure) for line in lines), ResourceHours()))


@pytest.mark.slow
@given(st.lists(runs, max_size=8))
def test_the_sums_of_the_groups_add_up_to_the_sum_of_all_runs(group: list[RunUsage]) -> None:
    total = usage_report.sum_runs("all", group)
    assert total.baseline is not None
    for lines in (
        usage_report.group_runs(lambda run: run.dag_id, group),
        usage_report.group_runs(usage_report.week_of, group),
    ):
        for figure in ("allocated", "busy", "idle", "baseline"):
            assert add_up(lines, figure) == close(getattr(total, figure))
    for figure in ("allocated", "busy", "idle"):
        assert add_up(usage_report.group_queues(group), figure) == close(getattr(total, figure))


@given(usages)
def test_busy_is_at_most_allocated(one: ResourceUsage) -> None:
    application = usage_report.convert_usage(one)
    pairs = zip(astuple(application.busy), astuple(application.allocated), strict=True)
    assert all(0 <= busy <= allocated for busy, allocated in pairs)


@given(runs)
def test_the_baseline_is_at_least_what_the_stages_allocated(run: RunUsage) -> None:
    line = usage_report.sum_runs("", [run])
    assert line.baseline is not None
    for baseline, allocated in zip(astuple(line.baseline), astuple(line.allocated), strict=True):
        assert baseline >= allocated * (1 - 1e-6)


@given(usages)
def test_the_baseline_of_one_application_is_what_it_allocated(one: ResourceUsage) -> None:
    application = usage_report.convert_usage(one)
    baseline = usage_report.compute_baseline([application])
    assert astuple(baseline) == pytest.approx(astuple(application.allocated), rel=1e-6)


@pytest.mark.slow
@given(st.lists(runs, max_size=8))
def test_the_most_idle_line_comes_first(group: list[RunUsage]) -> None:
    idle = [usage_report.idle_key(line) for line in usage_report.group_queues(group)]
    assert idle == sorted(idle, reverse=True)


def test_the_baseline_keeps_the_gpus_of_training_during_the_other_stages() -> None:
    export = usage("export", seconds=7200.0, core_seconds=7200.0)
    train = usage("train", started_at=MONDAY + 7200, core_seconds=8 * 3600.0, gpu_seconds=2 * 3600.0)
    predict = usage("predict", started_at=MONDAY + 3 * 3600, core_seconds=3600.0)
    baseline = usage_report.compute_baseline([usage_report.convert_usage(one) for one in (export, train, predict)])
    assert baseline == ResourceHours(cores=pytest.approx(8 * 4), gpus=pytest.approx(2 * 4))


def test_the_baseline_of_concurrent_stages_needs_the_sum_of_both() -> None:
    application: ApplicationUsage = usage_report.convert_usage(usage())
    both = [application, replace(application, task="other")]
    assert usage_report.compute_baseline(both).cores == pytest.approx(4)


def test_a_run_belongs_to_the_iso_week_in_which_it_started() -> None:
    sunday = (usage_report.convert_usage(usage(started_at=MONDAY - 1)), usage_report.convert_usage(usage()))
    assert usage_report.week_of(RunUsage("digits", "r1", sunday)) == "2026-W47"
    assert usage_report.week_of(RunUsage("digits", "r2", (usage_report.convert_usage(usage()),))) == "2026-W48"
