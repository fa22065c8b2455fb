"""The ledger's arithmetic: parts add up, busy is at most allocated, one application holds at least what stages hold."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard import ledger
from trainyard.contract.spec import Place
from trainyard.holding import Holding
from trainyard.ledger import Account, Amount, Entry, Line

MONDAY = 1795392000.0
"""2026-11-23T00:00Z, a Monday."""
QUEUES = ("etl", "train")


def holding(task: str = "train", **fields: float | str) -> Holding:
    place = Place(dag_id="digits", run_id="r1", task_id=task, directory="file:///runs/digits/r1")
    given = {"began": MONDAY, "seconds": 3600.0, "working": 1800.0, "core_seconds": 7200.0, "queue": "train"}
    return Holding.model_validate({"place": place, "application": "a1"} | given | fields)


def amounts(most: float = 1e7) -> st.SearchStrategy[float]:
    return st.floats(0, most, allow_subnormal=False)


holdings = st.builds(
    holding, began=st.floats(MONDAY, MONDAY + 1e6), seconds=st.floats(1, 1e6), working=amounts(2e6),
    core_seconds=amounts(), memory_mb_seconds=amounts(), gpu_seconds=amounts(), queue=st.sampled_from(QUEUES),
)  # fmt: skip
accounts = st.builds(
    Account, dag_id=st.sampled_from(["digits", "penguins"]), run_id=st.text(max_size=3),
    entries=st.lists(st.builds(ledger.entry, holdings), min_size=1, max_size=6).map(tuple),
)  # fmt: skip


def close(amount: Amount) -> object:
    return pytest.approx(astuple(amount), rel=1e-9, abs=1e-9)


def added(lines: list[Line], figure: str) -> tuple[float, ...]:
    return astuple(sum((getattr(line, figure) for line in lines), Amount()))


@given(st.lists(accounts, max_size=8))
def test_the_sums_of_the_parts_are_the_whole(found: list[Account]) -> None:
    whole = ledger.line("all", found)
    assert whole.monolith is not None
    for lines in (ledger.by(lambda account: account.dag_id, found), ledger.by(ledger.week, found)):
        for figure in ("allocated", "busy", "idle", "monolith"):
            assert added(lines, figure) == close(getattr(whole, figure))
    for figure in ("allocated", "busy", "idle"):
        assert added(ledger.by_queue(found), figure) == close(getattr(whole, figure))


@given(holdings)
def test_nothing_is_busy_that_was_not_allocated(held: Holding) -> None:
    entry = ledger.entry(held)
    assert all(0 <= busy <= had for busy, had in zip(astuple(entry.busy), astuple(entry.allocated), strict=True))


@given(accounts)
def test_one_application_holds_at_least_what_the_stages_hold(found: Account) -> None:
    whole = ledger.line("", [found])
    assert whole.monolith is not None
    for one, staged in zip(astuple(whole.monolith), astuple(whole.allocated), strict=True):
        assert one >= staged * (1 - 1e-6)


@given(holdings)
def test_a_run_of_one_application_is_its_own_monolith(held: Holding) -> None:
    entry = ledger.entry(held)
    assert astuple(ledger.monolith([entry])) == pytest.approx(astuple(entry.allocated), rel=1e-6)


@given(st.lists(accounts, max_size=8))
def test_the_worst_offender_comes_first(found: list[Account]) -> None:
    offences = [ledger.offence(line) for line in ledger.by_queue(found)]
    assert offences == sorted(offences, reverse=True)


def test_a_gang_between_two_stages_would_have_kept_its_gpus_all_the_while() -> None:
    export = holding("export", seconds=7200.0, core_seconds=7200.0)
    train = holding("train", began=MONDAY + 7200, core_seconds=8 * 3600.0, gpu_seconds=2 * 3600.0)
    predict = holding("predict", began=MONDAY + 3 * 3600, core_seconds=3600.0)
    found = ledger.monolith([ledger.entry(one) for one in (export, train, predict)])
    assert found == Amount(cores=pytest.approx(8 * 4), gpus=pytest.approx(2 * 4))


def test_stages_beside_each_other_would_have_needed_the_sum_of_both() -> None:
    entry: Entry = ledger.entry(holding())
    assert ledger.monolith([entry, replace(entry, task="other")]).cores == pytest.approx(4)


def test_a_run_belongs_to_the_iso_week_in_which_it_began() -> None:
    sunday = Account("digits", "r1", (ledger.entry(holding(began=MONDAY - 1)), ledger.entry(holding())))
    assert ledger.week(sunday) == "2026-W47"
    assert ledger.week(Account("digits", "r2", (ledger.entry(holding()),))) == "2026-W48"
