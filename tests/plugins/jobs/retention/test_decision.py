"""What is removed, of any items, references and options: never what is new, in use, current or referenced."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.errors import TrainyardError
from trainyard.jobs.retention.decision import (
    KINDS,
    SAFE_SECONDS,
    Decision,
    Inventory,
    Item,
    Options,
    Usage,
    build_options,
    decide,
    parse_age,
)

NOW = 1_000_000_000.0
DAY = 86400.0
URIS = [f"item-{number}" for number in range(12)]


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    items = []
    for uri in draw(st.lists(st.sampled_from(URIS), unique=True)):
        kind = draw(st.sampled_from(["runs", "datasets", "models"]))
        age = draw(st.one_of(st.none(), st.sampled_from([-1.0, 1.0, 29.0, 31.0, 100.0])))
        items.append(
            Item(
                kind,
                uri,
                draw(st.sampled_from(["a", "b"])),
                draw(st.integers(0, 3)),
                None if age is None else NOW - age * DAY,
                bytes=draw(st.integers(0, 9)),
                paths=frozenset(draw(st.lists(st.sampled_from(["p", "q", "r"])))),
                counted=draw(st.booleans()),
                current=draw(st.booleans()),
                min_age=draw(st.sampled_from([0.0, 60 * DAY])),
                protected=draw(st.sampled_from(["", "", "", "protected"])),
                references=frozenset(draw(st.lists(st.sampled_from(URIS), max_size=3))),
                unreadable=draw(st.sampled_from(["", "", "", "", "", "document"])),
            )
        )
    return Inventory(tuple(items), {"p": 100, "q": 200, "r": 300})


@st.composite
def options(draw: st.DrawFn) -> Options:
    kinds = draw(st.frozensets(st.sampled_from(KINDS)))
    return Options(draw(st.sampled_from([0.0, 30 * DAY, 90 * DAY])), draw(st.integers(1, 4)), kinds)


def usages() -> st.SearchStrategy[Usage]:
    items = st.dictionaries(st.sampled_from(URIS), st.just("in use"), max_size=3)
    return st.builds(Usage, items, st.dictionaries(st.sampled_from(KINDS), st.just("active"), max_size=1))


def removed(decision: Decision) -> set[str]:
    return {one.item.uri for one in decision.removals}


@pytest.mark.slow
@given(inventories(), usages(), options())
def test_what_stays_refers_to_nothing_that_is_removed(inventory: Inventory, usage: Usage, options: Options) -> None:
    gone = removed(decide(inventory, usage, options, NOW))
    staying = [item for item in inventory.items if item.uri not in gone]
    assert not gone.intersection(*[set().union(*(item.references for item in staying))])
    if any(item.unreadable for item in staying):
        assert not [item for item in inventory.items if item.uri in gone and item.kind in ("datasets", "models")]


@pytest.mark.slow
@given(inventories(), usages(), options())
def test_what_is_removed_is_old_chosen_neither_current_nor_in_use(
    inventory: Inventory, usage: Usage, options: Options
) -> None:
    for one in decide(inventory, usage, options, NOW).removals:
        item = one.item
        assert item.since is not None and NOW - item.since >= max(options.older_than, item.min_age)
        assert item.kind in options.kinds and item.kind not in usage.kinds and item.uri not in usage.items
        assert not item.current and not item.protected


@pytest.mark.slow
@given(inventories(), usages(), options())
def test_the_newest_of_each_group_stay(inventory: Inventory, usage: Usage, options: Options) -> None:
    gone = removed(decide(inventory, usage, options, NOW))
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in inventory.items:
        if item.counted:
            groups.setdefault((item.kind, item.group), []).append(item)
    for group in groups.values():
        staying = [item for item in group if item.uri not in gone]
        assert len(staying) >= min(options.keep, len(group))
        oldest_gone = max((item.order for item in group if item.uri in gone), default=-1)
        assert sum(item.order >= oldest_gone for item in staying) >= min(options.keep, len(group))


@pytest.mark.slow
@given(inventories(), usages(), options())
def test_a_second_decision_after_the_removal_removes_nothing(
    inventory: Inventory, usage: Usage, options: Options
) -> None:
    gone = removed(decide(inventory, usage, options, NOW))
    left = replace(inventory, items=tuple(item for item in inventory.items if item.uri not in gone))
    assert removed(decide(left, usage, options, NOW)) == set()


@pytest.mark.slow
@given(inventories(), usages(), options())
def test_shared_directories_are_removed_once_and_only_with_their_last_item(
    inventory: Inventory, usage: Usage, options: Options
) -> None:
    decision = decide(inventory, usage, options, NOW)
    gone = removed(decision)
    freed = [path for one in decision.removals for path in one.paths]
    used = set().union(*(item.paths for item in inventory.items if item.uri not in gone))
    assert len(freed) == len(set(freed)) and not used.intersection(freed)
    own = sum(one.item.bytes for one in decision.removals)
    assert sum(one.bytes for one in decision.removals) == own + sum(inventory.shared_bytes[path] for path in freed)


@pytest.mark.slow
@given(inventories(), usages(), options(), st.randoms())
def test_the_order_of_the_inventory_does_not_matter(
    inventory: Inventory, usage: Usage, options: Options, random: object
) -> None:
    shuffled = list(inventory.items)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = decide(replace(inventory, items=tuple(shuffled)), usage, options, NOW)
    assert removed(again) == removed(decide(inventory, usage, options, NOW))


OLD = NOW - 100 * DAY
RUN = Item("runs", "run", "dag", 0, OLD)
CHECKPOINT = Item("checkpoints", "run/checkpoints/train/step-1", "run", 0, OLD, counted=False, parent="run")
NEWER = [Item("runs", f"newer-{number}", "dag", number, OLD + number) for number in range(1, 6)]


def decide_on(*items: Item, kinds: frozenset[str] = frozenset(KINDS), usage: Usage = Usage()) -> set[str]:  # noqa: B008
    return removed(decide(Inventory(items), usage, Options(kinds=kinds), NOW))  # type: ignore[arg-type]


def test_a_run_is_removed_with_its_checkpoints() -> None:
    assert decide_on(RUN, CHECKPOINT, *NEWER) == {RUN.uri}


def test_the_checkpoints_alone_are_removed_of_a_run_that_stays() -> None:
    assert decide_on(RUN, CHECKPOINT, *NEWER, kinds=frozenset({"checkpoints"})) == {CHECKPOINT.uri}


def test_a_checkpoint_of_one_of_the_newest_runs_stays() -> None:
    assert decide_on(RUN, CHECKPOINT) == set()


def test_a_checkpoint_of_an_active_run_stays() -> None:
    assert decide_on(RUN, CHECKPOINT, *NEWER, usage=Usage({RUN.uri: "active"})) == set()


def test_a_run_stays_with_a_checkpoint_that_may_still_be_written() -> None:
    writing = replace(CHECKPOINT, since=NOW - SAFE_SECONDS / 2, min_age=SAFE_SECONDS)
    assert decide_on(RUN, writing, *NEWER) == set()


def test_references_keep_each_other_alive_only_from_what_stays() -> None:
    """Two versions that refer to each other, and that nothing else refers to, are both removed."""
    items = [Item("models", uri, "m", order, OLD, references=frozenset({other})) for uri, other, order in CYCLE]
    newer = [Item("models", f"newer-{number}", "m", number, NOW) for number in range(10, 15)]
    assert decide_on(*items, *newer) == {"a", "b"}


CYCLE = [("a", "b", 1), ("b", "a", 2)]


def test_many_items_are_decided_on_in_linear_time() -> None:
    """A chain of references, each document unreadable: the worst case of both rules."""
    count = 50_000
    chain = tuple(
        Item("models", str(n), "m", n, OLD, references=frozenset({str(n - 1)}), unreadable="document")
        for n in range(count)
    )
    assert removed(decide(Inventory(chain), Usage(), Options(), NOW)) == set()


@pytest.mark.parametrize(
    ("text", "seconds"), [("30d", 30 * DAY), ("12h", DAY / 2), ("2w", 14 * DAY), ("0.5d", DAY / 2)]
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["30", "d", "-1d", "30 days", "1m", "", "nan d"])
def test_another_duration_is_refused_by_the_option_with_an_example(text: str) -> None:
    with pytest.raises(TrainyardError, match=r"--older-than .* is not a duration; write .* for example 30d or 12h"):
        parse_age(text)


@pytest.mark.parametrize("keep", [0, -1])
def test_the_newest_cannot_be_removed(keep: int) -> None:
    with pytest.raises(TrainyardError, match=rf"--keep {keep} is not valid; write 1 or more"):
        build_options("30d", keep, None)
