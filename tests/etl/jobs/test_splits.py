"""A row's split and place follow from its content."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainyard.errors import TrainyardError
from trainyard.etl.jobs import splits

pytestmark = pytest.mark.spark

SPLITS = {"train": 0.8, "validation": 0.1, "test": 0.1}
FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def frame(spark, ids, partitions=2):
    rows = [(int(i), f"user{i % 7}", None if i % 3 else "x", float(i) / 3) for i in ids]
    return spark.createDataFrame(rows, "id long, user string, note string, value double").repartition(partitions)


def assigned(spark, ids, **options):
    found = splits.assign(frame(spark, ids), SPLITS, **options)
    return {row.id: row[splits.SPLIT] for row in found.collect()}


@FEW
@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=60), st.sets(st.integers(0, 10**6), max_size=60))
def test_a_row_keeps_its_split_when_rows_are_added(spark, before, added):
    old, new = assigned(spark, before), assigned(spark, before | added)
    assert old == {key: new[key] for key in old}


def test_fractions_hold_on_average(spark):
    found = Counter(assigned(spark, range(20_000)).values())
    assert found["train"] == pytest.approx(16_000, abs=250)
    assert found["test"] == pytest.approx(2_000, abs=200)


def test_the_seed_changes_the_splits(spark):
    assert assigned(spark, range(500), seed=1) != assigned(spark, range(500), seed=2)


def test_one_key_never_crosses_splits(spark):
    found = splits.assign(frame(spark, range(2000)), {"a": 0.5, "b": 0.5}, split_by="user").collect()
    assert len({(row.user, row[splits.SPLIT]) for row in found}) == 7
    assert {row[splits.SPLIT] for row in found} == {"a", "b"}


def test_stratified_fractions_hold_within_each_value(spark):
    found = splits.assign(frame(spark, range(1400)), SPLITS, stratify="user").collect()
    for user in {row.user for row in found}:
        count = Counter(row[splits.SPLIT] for row in found if row.user == user)
        assert count == {"train": 160, "validation": 20, "test": 20}


def test_a_row_added_moves_at_most_one_across_each_cut_of_its_stratum(spark):
    old, new = assigned(spark, range(700), stratify="user"), assigned(spark, range(701), stratify="user")
    assert sum(old[key] != new[key] for key in old) <= 2


def test_equal_rows_share_a_split(spark):
    rows = spark.createDataFrame([(i % 10, "a") for i in range(100)], "x int, y string")
    for options in ({}, {"stratify": "y"}):
        found = splits.assign(rows, {"a": 0.5, "b": 0.5}, **options).collect()
        assert len({(row.x, row[splits.SPLIT]) for row in found}) == 10


@FEW
@given(st.permutations(range(40)), st.integers(1, 4))
def test_the_order_does_not_depend_on_how_rows_arrive(spark, ids, partitions):
    def order(source):
        shuffled = splits.shuffle(splits.assign(source, SPLITS), 3)
        return [[row.id for row in part] for part in shuffled.rdd.glom().collect()]

    assert order(frame(spark, ids, partitions)) == order(frame(spark, range(40)))


def test_each_partition_is_sorted_by_split_and_otherwise_shuffled(spark):
    shuffled = splits.shuffle(splits.assign(frame(spark, range(900)), SPLITS), 2)
    for part in shuffled.rdd.glom().collect():
        names = [row[splits.SPLIT] for row in part]
        assert names == sorted(names)
        ids = [row.id for row in part]
        assert ids != sorted(ids)


@pytest.mark.parametrize("option", ["split_by", "stratify"])
def test_a_missing_column_is_named_with_those_there_are(spark, option):
    with pytest.raises(TrainyardError, match=rf"{option} names the column 'nope'.*id, user, note, value"):
        splits.assign(frame(spark, [1]), SPLITS, **{option: "nope"})
