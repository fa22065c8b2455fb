"""Splits that are not what was asked for are said, and what chance makes of fractions is not."""

from __future__ import annotations

import random

import pytest

from trainyard.etl.jobs.exporting.split_quality import find_deviations, find_shared_rows
from trainyard.schemas.datasets.manifest import Statistics

FRACTIONS = {"train": 0.8, "validation": 0.1, "test": 0.1}


def find(rows: dict[str, dict[str, int]], split_by: str | None = None, distinct: int = 16) -> list[str]:
    """Return the warnings for splits with so many rows of each label."""
    statistics = {
        name: {"label": Statistics(count=sum(values.values()), values=values), "id": Statistics(count=9)}
        for name, values in rows.items()
    }
    counts = {name: sum(values.values()) for name, values in rows.items()}
    return find_deviations(counts, statistics, FRACTIONS, split_by, distinct)


def test_shares_and_labels_of_a_table_with_few_distinct_rows_are_said_with_the_way_out() -> None:
    assert find({"train": {"0": 10_000, "1": 7_500}, "validation": {"0": 2_260}, "test": {"1": 240}}) == [
        "split train has 87.5% of the rows, and 80.0% were asked for; "
        "split validation has 11.3% of the rows, and 10.0% were asked for; "
        "split validation has no row with label = 1 (7,740 rows); "
        "split test has 1.2% of the rows, and 10.0% were asked for; "
        "split test has no row with label = 0 (12,260 rows). "
        "Equal rows share a split, and about 16 of 20,000 rows are distinct. "
        "Keep a column that differs between the rows, such as an id, and write it in split_by=, or leave out repeated "
        "rows in prepare."
    ]


def test_a_split_without_rows_is_said_too() -> None:
    (warning,) = find({"train": {"a": 900}, "validation": {"a": 100}}, split_by="user", distinct=7)
    assert warning.startswith("split train has 90.0% of the rows, and 80.0% were asked for; split test has 0.0% of")
    assert "split test has no row with label = a (1,000 rows). Rows with one value of 'user' share a split" in warning
    assert "about 7 values in 1,000 rows. Write a column with more values in split_by=" in warning


@pytest.mark.parametrize("rows", [3, 30, 1_000, 100_000])
def test_chance_is_not_said(rows: int) -> None:
    for seed in range(5):
        draws = random.Random(seed)
        splits: dict[str, dict[str, int]] = {name: {} for name in FRACTIONS}
        for name in draws.choices(list(FRACTIONS), list(FRACTIONS.values()), k=rows):
            label = "rare" if draws.random() < 0.01 else "common"
            splits[name][label] = splits[name].get(label, 0) + 1
        assert find(splits, distinct=rows) == []


def test_values_of_the_column_that_determines_the_split_may_be_missing() -> None:
    rows = {"train": {"a": 800}, "validation": {"b": 100}, "test": {"c": 100}}
    assert find(rows, split_by="label") == []
    assert "no row with label = b (100 rows), label = c (100 rows)" in find(rows)[0]


def test_equal_rows_in_several_splits_are_said_beyond_the_error_of_the_estimate() -> None:
    assert find_shared_rows(1_000, 1_040) == []
    (warning,) = find_shared_rows(1_000, 1_100)
    assert warning.startswith("about 100 of 1,000 distinct rows are in several splits")
