"""Decide what is removed from a storage root. Pure functions.

Something is removed if it is old enough, is not among the newest ones of its group, is not in use, and nothing that
stays refers to it. Whatever is not certain stays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from trainyard.errors import ArgumentError

Kind = Literal["environments", "runs", "checkpoints", "datasets", "models", "owners"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In the order of removal. Environments are first, at once after the look at what runs: a run may begin meanwhile."""
REFERENCED: frozenset[Kind] = frozenset({"datasets", "models"})
"""The kinds that documents refer to: all of them stay while a document that stays cannot be read."""
SAFE_SECONDS = 7 * 86400.0
"""What is not committed stays for so long, because a writer may be at work."""
_UNITS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


@dataclass(frozen=True)
class Item:
    """Something in the storage that can be removed by itself.

    Attributes:
        kind: What it is.
        uri: Its URI, which is unique.
        group: What it is one of: a DAG, a dataset, a model.
        order: Its place in the group; newer ones have a greater one.
        since: When its age begins, in seconds since the epoch: when it was changed last or, for a version of a dataset,
            when it was replaced. None if that is unknown.
        bytes: Its size, without `paths`.
        paths: URIs of directories that it shares with other items, and which are removed with the last of them.
        counted: Whether it is one of those of which the newest stay; not so what was never committed.
        current: Whether it is what readers of the group get by default.
        parent: The URI of the item that contains it, "" if none does.
        min_age: An age in seconds at which it may be removed at the earliest, whatever the options.
        protected: Why it stays, "" if that depends on other things.
        references: URIs of items that must stay as long as this one.
        unreadable: A document of this item that cannot be read, so that its references are not known; "" if none.
    """

    kind: Kind
    uri: str
    group: str
    order: float
    since: float | None
    bytes: int = 0
    paths: frozenset[str] = frozenset()
    counted: bool = True
    current: bool = False
    parent: str = ""
    min_age: float = 0.0
    protected: str = ""
    references: frozenset[str] = frozenset()
    unreadable: str = ""


@dataclass(frozen=True)
class Inventory:
    """What is stored.

    Attributes:
        items: The items.
        shared_bytes: The size of each of the items' `paths`.
    """

    items: tuple[Item, ...] = ()
    shared_bytes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Usage:
    """What is in use.

    Attributes:
        items: URI of an item -> why it stays.
        kinds: Kind -> why all items of it stay.
    """

    items: Mapping[str, str] = field(default_factory=dict)
    kinds: Mapping[Kind, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """What may be removed.

    Attributes:
        older_than: The minimum age in seconds.
        keep: How many of the newest runs of each DAG, versions of each dataset and model, and environments stay.
        kinds: The kinds that are removed.
    """

    older_than: float = 90 * 86400.0
    keep: int = 5
    kinds: frozenset[Kind] = frozenset(KINDS)


@dataclass(frozen=True)
class Removal:
    """An item that is removed.

    Attributes:
        item: The item.
        age: Its age in seconds.
        bytes: What is freed.
        paths: The shared directories that are removed with it.
        why: Why it is removed.
    """

    item: Item
    age: float
    bytes: int
    paths: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Decision:
    """What is removed, and why how many items stay that are old enough."""

    removals: tuple[Removal, ...]
    kept: Mapping[str, int]


def parse_age(text: str) -> float:
    """Return a duration such as "30d" in seconds.

    Raises:
        ArgumentError: It is not a number with a unit.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", text.strip())
    if not match:
        raise ArgumentError(
            f"--older-than {text!r} is not a duration; write a number and a unit (h, d or w), for example 30d or 12h."
        )
    return float(match[1]) * _UNITS[match[2]]


def build_options(older_than: str, keep: int, only: Collection[Kind] | None) -> Options:
    """Return the options of the command.

    Args:
        older_than: The minimum age, for example "30d".
        keep: How many of the newest stay.
        only: The kinds, by default all.

    Raises:
        ArgumentError: A value is not valid.
    """
    if keep < 1:
        raise ArgumentError(f"--keep {keep} is not valid; write 1 or more: the newest always stays.")
    return Options(parse_age(older_than), keep, frozenset(only or KINDS))


def decide(inventory: Inventory, usage: Usage, options: Options, now: float) -> Decision:
    """Decide what is removed, in time that is linear but for sorting.

    Args:
        inventory: What is stored.
        usage: What is in use.
        options: What may be removed.
        now: The time, in seconds since the epoch.
    """
    newest = _find_newest(inventory.items, options.keep)
    reasons: dict[str, str] = {}
    for item in inventory.items:
        reasons[item.uri] = _find_reason(item, usage, options, now, newest)
    _keep_referenced(inventory.items, reasons)
    removed = [item for item in inventory.items if not reasons[item.uri]]
    gone = {item.uri for item in removed}
    chosen = [item for item in removed if item.parent not in gone]
    freed = _share_out(inventory, chosen, gone)
    removals = tuple(
        Removal(
            item,
            now - (item.since or 0.0),
            item.bytes + sum(inventory.shared_bytes.get(path, 0) for path in freed[item.uri]),
            freed[item.uri],
            _explain(item, options),
        )
        for item in sorted(chosen, key=lambda item: (KINDS.index(item.kind), item.group, item.order, item.uri))
    )
    kept = Counter(reason for reason in reasons.values() if reason not in ("", _YOUNG, _OTHER_KIND))
    return Decision(removals, dict(kept))


_OTHER_KIND = "not chosen by --only"
_YOUNG = "young"
_NEWEST = "among the newest, by --keep"


def _find_newest(items: Iterable[Item], keep: int) -> set[str]:
    """Return the URIs of the newest items of each group."""
    groups: dict[tuple[Kind, str], list[Item]] = {}
    for item in items:
        if item.counted:
            groups.setdefault((item.kind, item.group), []).append(item)
    return {
        item.uri
        for group in groups.values()
        for item in sorted(group, key=lambda item: (item.order, item.uri), reverse=True)[: max(keep, 1)]
    }


def _find_reason(item: Item, usage: Usage, options: Options, now: float, newest: Collection[str]) -> str:
    """Return why an item stays, "" if only a reference could keep it."""
    if item.kind not in options.kinds:
        return _OTHER_KIND
    if item.since is None:
        return "of unknown age"
    if now - item.since < max(options.older_than, item.min_age):
        return _YOUNG
    if item.current:
        return "current"
    if item.uri in newest or item.parent in newest:
        return _NEWEST
    return (
        item.protected
        or usage.kinds.get(item.kind, "")
        or usage.items.get(item.uri, "")
        or (usage.items.get(item.parent, "") if item.parent else "")
    )


def _keep_referenced(items: Iterable[Item], reasons: dict[str, str]) -> None:
    """Add a reason for each item that one that stays refers to, directly or by others."""
    by_uri = {item.uri: item for item in items}
    pending = [item for item in by_uri.values() if reasons[item.uri]]
    all_kept = False
    while pending:
        item = pending.pop()
        if item.parent and reasons[item.uri] != _OTHER_KIND and not reasons.get(item.parent, _YOUNG):
            reasons[item.parent] = "contains something that stays"
            pending.append(by_uri[item.parent])
        for other in _list_referenced(item, by_uri, all_kept):
            if other in reasons and not reasons[other]:
                unknown = item.unreadable and other not in item.references
                reasons[other] = f"perhaps referenced: {item.unreadable} cannot be read" if unknown else "referenced"
                pending.append(by_uri[other])
        all_kept = all_kept or bool(item.unreadable)


def _list_referenced(item: Item, by_uri: Mapping[str, Item], all_kept: bool) -> Iterator[str]:
    yield from item.references
    if item.unreadable and not all_kept:
        yield from (other.uri for other in by_uri.values() if other.kind in REFERENCED)


def _share_out(inventory: Inventory, chosen: Iterable[Item], gone: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return, by the URI of an item, the shared directories that no item uses after the removal; each only once."""
    used = {path for item in inventory.items if item.uri not in gone for path in item.paths}
    freed = {}
    for item in chosen:
        freed[item.uri] = tuple(sorted(item.paths - used))
        used |= item.paths
    return freed


def _explain(item: Item, options: Options) -> str:
    if item.counted:
        return f"older than {describe_age(options.older_than)}, not among the newest {options.keep}"
    age = describe_age(max(options.older_than, item.min_age))
    match item.kind:
        case "owners":
            return f"its task has ended, older than {age}"
        case "checkpoints":
            return f"its run is not active, older than {age}"
        case _:
            return f"never committed, or half removed; older than {age}"


def describe_age(seconds: float) -> str:
    """Return a duration in days, or in hours if it is less than two days."""
    return f"{seconds / 86400:.0f} d" if seconds >= 2 * 86400 else f"{seconds / 3600:.0f} h"
