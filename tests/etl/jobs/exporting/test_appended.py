"""Which files of a table have the rows that were added since a version, and which versions are refused."""

from __future__ import annotations

import pytest

from trainyard.etl.jobs.exporting.appended import Ancestor, Change, find_files, find_operations


def add(version: int, file: str, changes_rows: bool = True) -> Change:
    return Change(version, file, True, changes_rows)


def remove(version: int, file: str, changes_rows: bool = True) -> Change:
    return Change(version, file, False, changes_rows)


def test_a_file_that_was_compacted_is_read_in_the_version_before() -> None:
    changes = [
        add(7, "d"), add(3, "a"), add(4, "b"), add(5, "all", False), remove(5, "a", False), remove(5, "b", False),
        remove(5, "old", False), add(6, "c"),
    ]  # fmt: skip
    assert find_files(changes, 8) == {4: ["a", "b"], 8: ["c", "d"]}


def test_a_version_that_deletes_or_changes_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="4"):
        find_files([add(3, "a"), remove(4, "a"), add(4, "b"), remove(5, "b")], 5)


def test_no_changes_are_no_files() -> None:
    assert find_files([], 8) == {}


SNAPSHOTS = {
    1: Ancestor(None, "append"), 2: Ancestor(1, "append"), 3: Ancestor(2, "replace"), 9: Ancestor(2, "delete"),
    5: Ancestor(4, "append"),
}  # fmt: skip


def test_operations_are_those_of_the_ancestors_after_a_snapshot() -> None:
    assert find_operations(SNAPSHOTS, 3, 1) == [(3, "replace"), (2, "append")]
    assert find_operations(SNAPSHOTS, 3, 3) == []


@pytest.mark.parametrize(("newest", "since"), [(3, 9), (3, 0), (5, 2)], ids=["of a branch", "unknown", "expired"])
def test_a_snapshot_that_is_no_ancestor_is_unknown(newest: int, since: int) -> None:
    with pytest.raises(KeyError):
        find_operations(SNAPSHOTS, newest, since)
