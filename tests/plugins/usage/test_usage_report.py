"""The ledger's arithmetic: parts add up, busy is at most allocated, one application holds at least what stages hold."""

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
    given = {"began": MONDAY, "seconds": 3600.0, "working": 1800.0, "core_seconds": 7200.0, "queue": "train"}
    return ResourceUsage.model_validate({"task_key": task_key, "application": "a1"} | given | fields)


def amounts(most: float = 1e7) -> st.SearchStrategy[float]:
    return st.floats(0, most, allow_subnormal=False)


usages = st.builds(
    usage, began=st.floats(MONDAY, MONDAY + 1e6), seconds=st.floats(1, 1e6), working=amounts(2e6),
    core_seconds=amounts(), memory_mb_seconds=amounts(), gpu_seconds=amounts(), queue=st.sampled_from(QUEUES),
)  # fmt: skip
accounts = st.builds(
    RunUsage, dag_id=st.sampled_from(["digits", "penguins"]), run_id=st.text(max_size=3),
    entries=st.lists(st.builds(usage_report.application_usage, usages), min_size=1, max_size=6).map(tuple),
)  # fmt: skip


def close(amount: ResourceHours) -> object:
    return pytest.approx(astuple(amount), rel=1e-9, abs=1e-9)


def added(lines: list[UsageLine], figure: str) -> tuple[float, ...]:
    return astuple(sum((getattr(line, figure) for line in lines), ResourceHours()))


@given(st.lists(accounts, max_size=8))
def test_the_sums_of_the_parts_are_the_whole(found: list[RunUsage]) -> None:
    whole = usage_report.sum_runs("all", found)
    assert whole.single_application is not None
    for lines in (
        usage_report.group_runs(lambda account: account.dag_id, found),
        usage_report.group_runs(usage_report.week, found),
    ):
        for figure in ("allocated", "busy", "idle", "single_application"):
            assert added(lines, figure) == close(getattr(whole, figure))
    for figure in ("allocated", "busy", "idle"):
        assert added(usage_report.group_queues(found), figure) == close(getattr(whole, figure))


@given(usages)
def test_nothing_is_busy_that_was_not_allocated(held: ResourceUsage) -> None:
    entry = usage_report.application_usage(held)
    assert all(0 <= busy <= had for busy, had in zip(astuple(entry.busy), astuple(entry.allocated), strict=True))


@given(accounts)
def test_one_application_holds_at_least_what_the_stages_hold(found: RunUsage) -> None:
    whole = usage_report.sum_runs("", [found])
    assert whole.single_application is not None
    for one, staged in zip(astuple(whole.single_application), astuple(whole.allocated), strict=True):
        assert one >= staged * (1 - 1e-6)


@given(usages)
def test_a_run_of_one_application_is_its_own_monolith(held: ResourceUsage) -> None:
    entry = usage_report.application_usage(held)
    assert astuple(usage_report.single_application([entry])) == pytest.approx(astuple(entry.allocated), rel=1e-6)


@given(st.lists(accounts, max_size=8))
def test_the_worst_offender_comes_first(found: list[RunUsage]) -> None:
    offences = [usage_report.idle_key(line) for line in usage_report.group_queues(found)]
    assert offences == sorted(offences, reverse=True)


def test_a_gang_between_two_stages_would_have_kept_its_gpus_all_the_while() -> None:
    export = usage("export", seconds=7200.0, core_seconds=7200.0)
    train = usage("train", began=MONDAY + 7200, core_seconds=8 * 3600.0, gpu_seconds=2 * 3600.0)
    predict = usage("predict", began=MONDAY + 3 * 3600, core_seconds=3600.0)
    found = usage_report.single_application([usage_report.application_usage(one) for one in (export, train, predict)])
    assert found == ResourceHours(cores=pytest.approx(8 * 4), gpus=pytest.approx(2 * 4))


def test_stages_beside_each_other_would_have_needed_the_sum_of_both() -> None:
    entry: ApplicationUsage = usage_report.application_usage(usage())
    assert usage_report.single_application([entry, replace(entry, task="other")]).cores == pytest.approx(4)


def test_a_run_belongs_to_the_iso_week_in_which_it_began() -> None:
    sunday = RunUsage(
        "digits",
        "r1",
        (usage_report.application_usage(usage(began=MONDAY - 1)), usage_report.application_usage(usage())),
    )
    assert usage_report.week(sunday) == "2026-W47"
    assert usage_report.week(RunUsage("digits", "r2", (usage_report.application_usage(usage()),))) == "2026-W48"
