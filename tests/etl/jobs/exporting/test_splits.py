"""The split and the position of a row are functions of its content."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Window
from pyspark.sql import functions as F

from trainyard.errors import TrainyardError, reason
from trainyard.etl.jobs.exporting import splits

pytestmark = pytest.mark.spark

SPLITS = {"train": 0.8, "validation": 0.1, "test": 0.1}
FEW = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def make_frame(spark, ids, partitions=2):
    rows = [(int(i), f"user{i % 7}", None if i % 3 else "x", float(i) / 3) for i in ids]
    return spark.createDataFrame(rows, "id long, user string, note string, value double").repartition(partitions)


def assign(spark, ids, **options):
    rows = splits.assign(make_frame(spark, ids), SPLITS, **options)
    return {row.id: row[splits.SPLIT] for row in rows.collect()}


@FEW
@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=60), st.sets(st.integers(0, 10**6), max_size=60))
def test_a_row_keeps_its_split_when_rows_are_added(spark, before, added):
    old, new = assign(spark, before), assign(spark, before | added)
    assert old == {key: new[key] for key in old}


@pytest.mark.parametrize(
    ("seed", "hashes"), [(0, -8820591112527233745), (-5, -2820587423628354108), (1 << 40, 3716969574476465696)]
)
def test_rows_are_hashed_as_by_earlier_releases_which_have_assigned_their_splits(spark, seed, hashes):
    columns = {"`a``b`": "id", "c": "if(id % 3 = 0, null, id)", "d": "array(float(id), 2f)", "e": "concat('x', id)"}
    rows = spark.range(1000).selectExpr(*(f"if(id < 0, null, {value}) as {name}" for name, value in columns.items()))
    together = rows.select(splits._hash(rows.columns, seed).alias("hash")).selectExpr("bit_xor(hash)")
    assert together.collect()[0][0] == hashes


def test_a_row_keeps_its_split_when_a_column_is_never_null_anymore(spark):
    frame = make_frame(spark, range(0, 600, 3))
    filled = frame.fillna({"id": 0, "value": 0.0, "note": ""})
    assert frame.schema["id"].nullable and not filled.schema["id"].nullable
    for options in ({}, {"split_by": "id"}, {"stratify": "user"}):
        old, new = (splits.assign(rows, SPLITS, **options).collect() for rows in (frame, filled))
        assert {row.id: row[splits.SPLIT] for row in old} == {row.id: row[splits.SPLIT] for row in new}


def test_fractions_hold_on_average(spark):
    counts = Counter(assign(spark, range(20_000)).values())
    assert counts["train"] == pytest.approx(16_000, abs=250)
    assert counts["test"] == pytest.approx(2_000, abs=200)


def test_the_seed_changes_the_splits(spark):
    assert assign(spark, range(500), seed=1) != assign(spark, range(500), seed=2)


def test_rows_of_one_key_share_a_split(spark):
    rows = splits.assign(make_frame(spark, range(2000)), {"a": 0.5, "b": 0.5}, split_by="user").collect()
    assert len({(row.user, row[splits.SPLIT]) for row in rows}) == 7
    assert {row[splits.SPLIT] for row in rows} == {"a", "b"}


def test_stratified_fractions_hold_within_each_value(spark):
    rows = splits.assign(make_frame(spark, range(1400)), SPLITS, stratify="user").collect()
    for user in {row.user for row in rows}:
        count = Counter(row[splits.SPLIT] for row in rows if row.user == user)
        assert count == {"train": 160, "validation": 20, "test": 20}


def test_no_task_sorts_all_rows_of_a_stratum_and_the_splits_are_those_of_its_order(spark):
    """The splits are by the rank of the hash in the stratum, with nulls and NaNs as strata of their own."""
    rows = [(i % 5000, [float("nan"), None, 1.0][min(i % 10, 2)], f"{i}" if i % 3 else None) for i in range(12_000)]
    frame = spark.createDataFrame(rows, "id long, of double, note string").repartition(4)
    assigned = splits.assign(frame, SPLITS, stratify="of", seed=3)
    assert assigned.columns == [*frame.columns, splits.SPLIT]
    stratum = Window.partitionBy("of")
    rank = F.rank().over(stratum.orderBy(splits._hash(frame.columns, 3)))
    position = (rank - 0.5) / F.count(F.lit(1)).over(stratum)
    expected = frame.withColumn(splits.SPLIT, splits._choose_split(position, SPLITS))
    assert Counter(map(str, assigned.collect())) == Counter(map(str, expected.collect()))
    plan = assigned._jdf.queryExecution().executedPlan().toString()
    sorted_by = [line for line in plan.splitlines() if "Sort [" in line and splits._ORDER in line]
    assert sorted_by and all(splits._PART in line for line in sorted_by), plan


def test_an_added_row_moves_at_most_one_row_across_each_cut_of_its_stratum(spark):
    old, new = assign(spark, range(700), stratify="user"), assign(spark, range(701), stratify="user")
    assert sum(old[key] != new[key] for key in old) <= 2


def test_stratified_fractions_hold_although_many_rows_are_equal(spark):
    """Groups of equal rows are placed first, the largest before the others: half of all rows, and pairs."""
    rows = [("all equal", -1)] * 50 + [("half equal", i * (i % 2)) for i in range(1001)]
    rows += [("pairs", i // 2) for i in range(600)] + [(None, i) for i in range(40)]
    frame = spark.createDataFrame(rows, "of string, x long").repartition(3)
    assigned = splits.assign(frame, SPLITS, stratify="of", seed=5).collect()
    counts = {of: Counter(row[splits.SPLIT] for row in assigned if row.of == of) for of in {row.of for row in assigned}}
    assert counts.pop("all equal") == {"train": 50}
    for of, count in counts.items():
        total = sum(count.values())
        assert count["validation"] == pytest.approx(total / 10, abs=1) == count["test"], of
    assert len({(row.of, row.x, row[splits.SPLIT]) for row in assigned}) == len(set(rows))


def test_equal_rows_share_a_split(spark):
    rows = spark.createDataFrame([(i % 10, "a") for i in range(100)], "x int, y string")
    for options in ({}, {"stratify": "y"}):
        assigned = splits.assign(rows, {"a": 0.5, "b": 0.5}, **options).collect()
        assert len({(row.x, row[splits.SPLIT]) for row in assigned}) == 10


@FEW
@given(st.permutations(range(40)), st.integers(1, 4))
def test_the_order_does_not_depend_on_the_order_and_partitions_of_the_source(spark, ids, partitions):
    def read_order(source):
        shuffled = splits.shuffle(splits.assign(source, SPLITS), 3)
        return [[row.id for row in part] for part in shuffled.rdd.glom().collect()]

    assert read_order(make_frame(spark, ids, partitions)) == read_order(make_frame(spark, range(40)))


def test_each_partition_is_sorted_by_split_and_otherwise_shuffled(spark):
    shuffled = splits.shuffle(splits.assign(make_frame(spark, range(900)), SPLITS), 2)
    for part in shuffled.rdd.glom().collect():
        names = [row[splits.SPLIT] for row in part]
        assert names == sorted(names)
        ids = [row.id for row in part]
        assert ids != sorted(ids)


@pytest.mark.parametrize("option", ["split_by", "stratify"])
def test_a_missing_column_is_refused_with_the_existing_ones(spark, option):
    with pytest.raises(TrainyardError, match=rf"{option} names the column 'nope'.*id, user, note, value"):
        splits.assign(make_frame(spark, [1]), SPLITS, **{option: "nope"})


def assign_days(spark, days, kind="date"):
    frame = spark.createDataFrame([(day,) for day in days], "day string").select(F.col("day").cast(kind).alias("at"))
    rows = splits.assign_by_time(frame, "at", {"validation": "2026-10-01", "test": "2026-11-01T12:00"}).collect()
    return [row[splits.SPLIT] for row in rows]


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
def test_the_future_is_never_in_an_earlier_split(spark, kind):
    days = ["2020-01-01", "2026-09-30", "2026-10-01", "2026-11-01", "2026-11-02", "2030-01-01"]
    expected = ["train", "train", "validation", "validation", "test", "test"]
    assert assign_days(spark, days, kind) == expected


def test_a_time_of_day_is_compared_too(spark):
    assert assign_days(spark, ["2026-11-01 11:59:59", "2026-11-01 12:00:00"], "timestamp") == ["validation", "test"]


def test_the_error_of_a_row_without_a_time_is_within_a_line_of_the_plans_that_spark_logs(spark):
    frame = spark.createDataFrame([], "at date")
    plan = splits.assign_by_time(frame, "at", {"test": "2026-11-01"})._jdf.queryExecution().analyzed()
    (text,) = [line for line in plan.toString().splitlines() if "TrainyardError" in line]
    assert text.startswith("Project [") and text.endswith("]")


def test_a_row_without_a_time_is_an_error_that_names_the_column(spark):
    with pytest.raises(Exception, match="column 'at', by whose times") as failure:
        assign_days(spark, ["2026-10-01", None])
    assert reason(failure.value) == splits._null_time_text("at")
