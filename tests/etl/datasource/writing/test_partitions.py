"""Partitions are added to a dataset and replaced, and the others stay unchanged."""

from __future__ import annotations

import os
import time
from pathlib import Path

import fsspec
import numpy as np
import pytest
from pyspark.sql import functions as F

from tests.etl.datasource.test_transactions import start
from trainyard.cli.main import main
from trainyard.errors import TrainyardError, reason
from trainyard.files import storage, uris
from trainyard.schemas.datasets import manifest, versions
from trainyard.trainer.data.reading.cache import ShardCache
from trainyard.trainer.data.reading.split_reader import SplitReader

pytestmark = pytest.mark.spark


def make_day(spark, number, rows=40):
    return spark.range(1000 * number, 1000 * number + rows, numPartitions=2).selectExpr(
        "id", "array(float(id), float(id % 7)) as x", "if(id % 4 = 0, 'test', 'train') as split"
    )


def write(frame, path, partition, mode="overwrite"):
    writer = frame.write.format("trainyard").mode(mode).option("splitColumn", "split").option("rowsPerBatch", "8")
    if partition is not None:
        writer = writer.option("partition", partition)
    writer.save(str(path))
    return manifest.read_current(str(path))


def write_unsplit(frame, path, partition):
    frame.coalesce(1).write.format("trainyard").mode("overwrite").option("partition", partition).save(str(path))
    return manifest.read_current(str(path))


def read_ids(spark, path, **options):
    read = spark.read.format("trainyard").options(**options).load(str(path))
    return sorted(row.id for row in read.select("id").collect())


def list_files(directory):
    return {path: path.stat().st_mtime_ns for path in Path(directory).rglob("*.arrow")}


@pytest.fixture
def dataset(spark, tmp_path):
    """A dataset of two days, of which the second was appended."""
    write(make_day(spark, 1), tmp_path / "d", "2026-01-01")
    before = list_files(tmp_path / "d")
    write(make_day(spark, 2), tmp_path / "d", "2026-01-02", mode="append")
    assert before.items() <= list_files(tmp_path / "d").items(), "the first day is unchanged"
    return tmp_path / "d"


def test_a_partition_is_added_to_the_others(spark, dataset):
    current = manifest.read_current(str(dataset))
    assert {name: (p.version, p.rows) for name, p in current.partitions.items()} == {
        "2026-01-01": (1, 40), "2026-01-02": (2, 40),
    }  # fmt: skip
    assert (current.number, current.rows) == (2, 80)
    assert read_ids(spark, dataset) == [*range(1000, 1040), *range(2000, 2040)]
    assert main(["dataset", "verify", str(dataset)]) == 0


def test_columns_of_a_partition_in_another_order_are_read_by_their_names(spark, tmp_path):
    for day, columns in enumerate((("id as x", "-id as y"), ("-id as y", "id as x"))):
        write(spark.range(1, 9).selectExpr(*columns, "'train' as split"), tmp_path / "d", f"2026-01-0{day + 1}")
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "d"), str(tmp_path / "d"), recursive=True)
    uri = f"memory://{tmp_path}/d"
    for cache_bytes in (0, 1 << 20):
        cache = ShardCache(tmp_path / f"cache{cache_bytes}", cache_bytes)
        reader = SplitReader(uri, manifest.read_current(uri), "train", ("x", "y"), cache=cache)
        blocks = [reader.block(number) for number in range(len(reader.blocks))]
        assert sorted(x for block in blocks for x in block["x"].tolist()) == sorted([*range(1, 9), *range(1, 9)])
        assert all((block["x"] == -block["y"]).all() for block in blocks)
    memory.rm(str(tmp_path / "d"), recursive=True)


def test_the_order_of_columns_is_that_of_the_first_write(spark, tmp_path):
    in_order, reversed_ = ("id as x", "double(id) as y"), ("double(id) as y", "id as x")
    rows = {day: spark.range(100 * day, 100 * day + 5) for day in (1, 2)}
    write_unsplit(rows[1].selectExpr(*in_order), tmp_path / "d", "1")
    first = write_unsplit(rows[2].selectExpr(*reversed_), tmp_path / "d", "2")
    for day, columns in ((2, reversed_), (1, in_order), (2, reversed_)):
        again = write_unsplit(rows[day].selectExpr(*columns), tmp_path / "d", str(day))
        assert again.content_hash == first.content_hash
    assert [column.name for column in again.columns] == ["x", "y"]
    assert spark.read.format("trainyard").load(str(tmp_path / "d")).columns == ["x", "y"]


@pytest.mark.parametrize("rows", ["id, null as s", "id, if(id < 2, null, string(id)) as s"])
def test_nulls_of_a_partition_are_read_although_another_has_none(spark, tmp_path, rows):
    rows = spark.range(4).selectExpr(*rows.split(", ", 1)).selectExpr("id", "string(s) as s").coalesce(1)
    write_unsplit(rows, tmp_path / "d", "a")
    write_unsplit(rows.selectExpr("id", "coalesce(s, '') as s"), tmp_path / "d", "b")
    read = spark.read.format("trainyard").load(str(tmp_path / "d"))
    nulls = rows.where("s is null").count()
    assert (read.where("s is null").count(), read.dropna().count()) == (nulls, 8 - nulls)
    assert read.groupBy(F.coalesce("s", F.lit("missing")).alias("s")).count().where("s = 'missing'").collect() == [
        ("missing", nulls)
    ]


def test_statistics_are_those_of_all_rows_together(spark, dataset, tmp_path):
    rows = make_day(spark, 1).union(make_day(spark, 2))
    reference = write(rows, tmp_path / "once", None)
    for name, expected_split in reference.splits.items():
        split = manifest.read_current(str(dataset)).splits[name]
        assert split.rows == expected_split.rows
        for column, expected in expected_split.statistics.items():
            statistics = split.statistics[column]
            assert (statistics.count, statistics.nulls, statistics.min, statistics.max, statistics.values) == (
                expected.count, expected.nulls, expected.min, expected.max, expected.values,
            )  # fmt: skip
            np.testing.assert_allclose(statistics.mean, expected.mean, rtol=1e-12)
            np.testing.assert_allclose(statistics.std, expected.std, rtol=1e-9)


def test_a_partition_that_is_written_again_replaces_only_itself(spark, dataset):
    before = manifest.read_current(str(dataset))
    rewritten = write(make_day(spark, 1), dataset, "2026-01-01")
    assert rewritten.content_hash == before.content_hash, "the same rows have the same content hash in any order"
    assert rewritten.number == 3
    assert rewritten.splits["train"].statistics["x"].count == before.splits["train"].statistics["x"].count
    smaller = write(make_day(spark, 1, rows=12), dataset, "2026-01-01")
    assert read_ids(spark, dataset) == [*range(1000, 1012), *range(2000, 2040)]
    assert sum(s.statistics["id"].count for s in smaller.splits.values()) == 52
    assert max(s.statistics["id"].max[0] for s in smaller.splits.values()) == 2039


def test_the_order_of_writes_does_not_matter(spark, dataset, tmp_path):
    write(make_day(spark, 2), tmp_path / "other", "2026-01-02")
    other = write(make_day(spark, 1), tmp_path / "other", "2026-01-01")
    assert other.content_hash == manifest.read_current(str(dataset)).content_hash


@pytest.mark.parametrize("declared", [{"splits": "train,validation,test"}, {}])
def test_splits_have_the_same_order_whichever_partition_is_written_first(spark, tmp_path, declared):
    splits = {"1": "train", "2": "validation", "3": "test"}
    hashes = set()
    for name, days in {"a": "123", "b": "321"}.items():
        for day in days:
            rows = spark.range(9).selectExpr("id", f"'{splits[day]}' as split").coalesce(1)
            options = {"splitColumn": "split", "partition": day, **declared}
            rows.write.format("trainyard").mode("overwrite").options(**options).save(str(tmp_path / name))
        current = manifest.read_current(str(tmp_path / name))
        hashes.add(current.content_hash)
        assert list(current.splits) == (["train", "validation", "test"] if declared else sorted(splits.values()))
    assert len(hashes) == 1


def test_a_split_that_no_partition_has_rows_in_is_a_warning(spark, tmp_path):
    options = {"splitColumn": "split", "splits": "train,test"}
    warnings = []
    for day, split in (("1", "train"), ("2", "test"), ("2", "train"), ("3", "train")):
        rows = spark.range(9).selectExpr("id", f"'{split}' as split").coalesce(1)
        write = rows.write.format("trainyard").mode("overwrite").option("partition", day)
        write.options(**options).save(str(tmp_path / "d"))
        warnings.append(manifest.read_current(str(tmp_path / "d")).provenance.warnings)
    empty = ("split test has no rows, in this partition and in all others",)
    assert warnings == [empty, (), empty, empty]


def test_earlier_versions_and_later_partitions_are_read(spark, dataset):
    assert read_ids(spark, dataset, version="1") == [*range(1000, 1040)]
    assert read_ids(spark, dataset, since="1") == [*range(2000, 2040)]
    assert read_ids(spark, dataset, since="0") == [*range(1000, 1040), *range(2000, 2040)]
    newer = manifest.read_version(str(dataset), since=1)
    assert newer.rows == 40 and list(newer.partitions) == ["2026-01-02"]
    assert newer.splits["train"].statistics == manifest.read_current(str(dataset)).splits["train"].statistics
    with pytest.raises(TrainyardError, match="version 2 of the dataset adds nothing to version 2"):
        manifest.read_version(str(dataset), since=2)


def test_a_partition_with_other_columns_is_refused(spark, dataset):
    wide = make_day(spark, 3).selectExpr("id", "array(float(id)) as x", "split")
    with pytest.raises(Exception) as caught:
        write(wide, dataset, "2026-01-03")
    assert (
        f"partition '2026-01-03' cannot be added to {dataset}: column 'x' is a tensor of float [1] in the partition, "
        "but a tensor of float [2] in version 2 of the dataset. Return the same columns from prepare, or export all "
        "partitions to another dataset." in (reason(caught.value) or "")
    )
    assert manifest.read_current(str(dataset)).number == 2
    assert versions.unreferenced(str(dataset)) == []


def test_the_only_partition_is_replaced_by_other_columns(spark, tmp_path):
    write(make_day(spark, 1), tmp_path / "d", "2026-01-01")
    wide = make_day(spark, 1).withColumn("y", F.lit(1.5))
    assert [column.name for column in write(wide, tmp_path / "d", "2026-01-01").columns] == ["id", "x", "y"]
    assert spark.read.format("trainyard").load(str(tmp_path / "d")).where("y = 1.5").count() == 40


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_partition_beside_rows_without_one_is_refused_since_they_may_be_the_same(spark, tmp_path, mode):
    write(make_day(spark, 1), tmp_path / "d", None)
    with pytest.raises(Exception) as caught:
        write(make_day(spark, 1), tmp_path / "d", "2026-01-01", mode=mode)
    assert (
        f"partition '2026-01-01' cannot be added to {tmp_path}/d: version 1 was written without a partition, and may "
        "have the same rows. Export all partitions to another dataset, or write without a partition." in
        (reason(caught.value) or "")
    )  # fmt: skip
    assert versions.unreferenced(str(tmp_path / "d")) == []


@pytest.mark.full
def test_a_partition_is_refused_if_rows_without_one_are_committed_meanwhile(spark, tmp_path):
    process = start_waiting_writer(tmp_path, "a")
    write(make_numbers(spark), tmp_path / "d", None)
    (tmp_path / "go").write_text("go")
    output, _ = process.communicate()
    assert process.returncode != 0
    assert f"partition 'a' cannot be added to {tmp_path}/d: version 1 was written without a partition" in output
    assert list(manifest.read_current(str(tmp_path / "d")).partitions) == [""]


def test_a_dataset_with_both_kinds_of_partitions_takes_further_ones(spark, dataset):
    """Earlier releases wrote such datasets."""
    both = manifest.read_current(str(dataset))
    partitions = {"": both.partitions["2026-01-01"], "2026-01-02": both.partitions["2026-01-02"]}
    manifest.commit(str(dataset), both.model_copy(update={"number": 3, "partitions": partitions}))
    assert list(write(make_day(spark, 3), dataset, "2026-01-03").partitions) == ["", "2026-01-02", "2026-01-03"]
    assert read_ids(spark, dataset) == [*range(1000, 1040), *range(2000, 2040), *range(3000, 3040)]


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (None, "to which rows can only be appended as a partition. Name it with option('partition', '2026-01-02')"),
        ("2026-01-01", "that has a partition '2026-01-01', written in version 1. Replace it with mode('overwrite')"),
    ],
)
def test_an_append_that_would_replace_rows_is_refused(spark, dataset, partition, message):
    with pytest.raises(Exception) as caught:
        write(make_day(spark, 1), dataset, partition, mode="append")
    assert message in (reason(caught.value) or "")


def test_a_write_without_a_partition_replaces_all_partitions(spark, dataset):
    assert list(write(make_day(spark, 3), dataset, None).partitions) == [""]
    assert read_ids(spark, dataset) == [*range(3000, 3040)]
    assert read_ids(spark, dataset, version="2") == [*range(1000, 1040), *range(2000, 2040)]


@pytest.mark.full
def test_two_concurrent_writers_of_different_partitions_both_succeed(spark, tmp_path):
    process = start_waiting_writer(tmp_path, "a")
    write(make_numbers(spark), tmp_path / "d", "b")
    (tmp_path / "go").write_text("go")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert list(manifest.read_current(str(tmp_path / "d")).partitions) == ["a", "b"]
    assert manifest.read_current(str(tmp_path / "d")).rows == 1040
    assert versions.unreferenced(str(tmp_path / "d")) == []


@pytest.mark.full
def test_of_two_concurrent_writers_of_one_partition_the_first_succeeds(spark, tmp_path):
    process = start_waiting_writer(tmp_path, "a")
    write(make_numbers(spark), tmp_path / "d", "a")
    (tmp_path / "go").write_text("go")
    output, _ = process.communicate()
    assert process.returncode != 0
    assert f"partition 'a' of {tmp_path}/d was written by application write " in output
    assert manifest.read_current(str(tmp_path / "d")).rows == 40
    assert versions.unreferenced(str(tmp_path / "d")) == []


def make_numbers(spark):
    """Return rows with the columns that the waiting writer writes."""
    return spark.range(40).selectExpr("id", "double(id) as x", "'train' as split")


def start_waiting_writer(tmp_path, partition):
    """Start a writer in another application, and return when it is about to commit."""
    os.mkfifo(tmp_path / "ready")
    os.mkfifo(tmp_path / "go")
    process = start("compete", tmp_path / "d", partition)
    assert (tmp_path / "ready").read_text() == "compete"
    return process


def test_a_version_that_is_leased_does_not_expire(spark, dataset):
    uri = str(dataset)
    write(make_day(spark, 1), dataset, "2026-01-01")
    now = time.time() + versions.DAY
    with versions.lease(uri, 2, "reader"):
        assert versions.expire(uri, keep=1, days=0, now=now) == [1]
        assert read_ids(spark, dataset, version="2") == [*range(1000, 1040), *range(2000, 2040)]
    assert versions.expire(uri, keep=1, days=2, now=now) == [], "it was replaced a day ago"
    assert versions.expire(uri, keep=1, days=0, now=now) == [2]
    assert manifest.list_versions(uri) == [3]
    assert read_ids(spark, dataset) == [*range(1000, 1040), *range(2000, 2040)]
    assert len(storage.list_names(uris.join(uri, "shards"))) == 2
    assert main(["dataset", "verify", uri]) == 0


def test_a_partition_is_dropped_from_the_next_version_and_stays_in_those_before(spark, dataset, capsys):
    alone = write(make_day(spark, 2), dataset.parent / "alone", "2026-01-02")
    assert main(["dataset", "drop", str(dataset), "2026-01-01", "--yes"]) == 0
    assert "version 3 has 40 rows, without partition '2026-01-01'" in capsys.readouterr().out
    newest = manifest.read_current(str(dataset))
    assert (newest.number, list(newest.partitions)) == (3, ["2026-01-02"])
    assert {name: split.statistics for name, split in newest.splits.items()} == {
        name: split.statistics for name, split in alone.splits.items()
    }
    assert read_ids(spark, dataset) == list(range(2000, 2040))
    assert len(read_ids(spark, dataset, version=2)) == 80
    write(make_day(spark, 1), dataset, "2026-01-01")
    assert len(read_ids(spark, dataset)) == 80


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("2026-01-03", "has no partition '2026-01-03'; it has 2026-01-01, 2026-01-02"),
        ("2026-01-02", "the only partition"),
    ],
)
def test_a_partition_that_cannot_be_dropped_is_named(spark, dataset, capsys, name, problem):
    if "only" in problem:
        assert main(["dataset", "drop", str(dataset), "2026-01-01", "--yes"]) == 0
    assert main(["dataset", "drop", str(dataset), name]) == 1
    assert problem in capsys.readouterr().err
