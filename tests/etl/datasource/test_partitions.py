"""A dataset that grows: partitions are added and replaced, and what was there stays as it lies."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from tests.etl.datasource.test_transactions import start
from trainyard import storage
from trainyard.cli.main import main
from trainyard.errors import TrainyardError, reason
from trainyard.schemas import manifest, versions

pytestmark = pytest.mark.spark


def day(spark, number, rows=40):
    return spark.range(1000 * number, 1000 * number + rows, numPartitions=2).selectExpr(
        "id", "array(float(id), float(id % 7)) as x", "if(id % 4 = 0, 'test', 'train') as split"
    )


def write(df, place, partition, mode="overwrite"):
    chosen = df.write.format("trainyard").mode(mode).option("splitColumn", "split").option("rowsPerBatch", "8")
    if partition is not None:
        chosen = chosen.option("partition", partition)
    chosen.save(str(place))
    return manifest.read_current(str(place))


def ids(spark, place, **options):
    read = spark.read.format("trainyard").options(**options).load(str(place))
    return sorted(row.id for row in read.select("id").collect())


def files(place):
    return {path: path.stat().st_mtime_ns for path in Path(place).rglob("*.arrow")}


@pytest.fixture
def grown(spark, tmp_path):
    """Two days, of which the second came later."""
    write(day(spark, 1), tmp_path / "d", "2026-01-01")
    before = files(tmp_path / "d")
    write(day(spark, 2), tmp_path / "d", "2026-01-02", mode="append")
    assert before.items() <= files(tmp_path / "d").items(), "the first day is not written again"
    return tmp_path / "d"


def test_a_partition_is_added_to_those_that_are_there(spark, grown):
    found = manifest.read_current(str(grown))
    assert {name: (p.version, p.rows) for name, p in found.partitions.items()} == {
        "2026-01-01": (1, 40), "2026-01-02": (2, 40),
    }  # fmt: skip
    assert (found.number, found.rows) == (2, 80)
    assert ids(spark, grown) == [*range(1000, 1040), *range(2000, 2040)]
    assert main(["dataset", "verify", str(grown)]) == 0


def test_the_statistics_are_those_of_all_rows_together(spark, grown, tmp_path):
    both = day(spark, 1).union(day(spark, 2))
    at_once = write(both, tmp_path / "once", None)
    for split, whole in at_once.splits.items():
        grew = manifest.read_current(str(grown)).splits[split]
        assert grew.rows == whole.rows
        for column, figures in whole.statistics.items():
            found = grew.statistics[column]
            assert (found.count, found.nulls, found.min, found.max, found.values) == (
                figures.count, figures.nulls, figures.min, figures.max, figures.values,
            )  # fmt: skip
            np.testing.assert_allclose(found.mean, figures.mean, rtol=1e-12)
            np.testing.assert_allclose(found.std, figures.std, rtol=1e-9)


def test_a_partition_that_is_written_again_replaces_itself_alone(spark, grown):
    before = manifest.read_current(str(grown))
    again = write(day(spark, 1), grown, "2026-01-01")
    assert again.content_hash == before.content_hash, "the same rows are the same dataset, in whatever order they came"
    assert again.number == 3
    assert again.splits["train"].statistics["x"].count == before.splits["train"].statistics["x"].count
    fewer = write(day(spark, 1, rows=12), grown, "2026-01-01")
    assert ids(spark, grown) == [*range(1000, 1012), *range(2000, 2040)]
    assert sum(s.statistics["id"].count for s in fewer.splits.values()) == 52
    assert max(s.statistics["id"].max[0] for s in fewer.splits.values()) == 2039


def test_the_order_of_writes_does_not_matter(spark, grown, tmp_path):
    write(day(spark, 2), tmp_path / "other", "2026-01-02")
    other = write(day(spark, 1), tmp_path / "other", "2026-01-01")
    assert other.content_hash == manifest.read_current(str(grown)).content_hash


def test_earlier_versions_and_what_came_since_can_be_read(spark, grown):
    assert ids(spark, grown, version="1") == [*range(1000, 1040)]
    assert ids(spark, grown, since="1") == [*range(2000, 2040)]
    newer = manifest.read_version(str(grown), since=1)
    assert newer.rows == 40 and list(newer.partitions) == ["2026-01-02"]
    assert newer.splits["train"].statistics == manifest.read_current(str(grown)).splits["train"].statistics
    with pytest.raises(TrainyardError, match="version 2 of the dataset has nothing that came after version 2"):
        manifest.read_version(str(grown), since=2)


def test_other_columns_are_refused(spark, grown):
    wide = day(spark, 3).selectExpr("id", "array(float(id)) as x", "split")
    with pytest.raises(Exception) as caught:
        write(wide, grown, "2026-01-03")
    assert (
        f"partition '2026-01-03' cannot be added to {grown}: column 'x' is a tensor of float [1] in it, and a "
        "tensor of float [2] in version 2 of the dataset." in (reason(caught.value) or "")
    )
    assert manifest.read_current(str(grown)).number == 2
    assert versions.unreferenced(str(grown)) == []


@pytest.mark.parametrize(
    ("partition", "told"),
    [
        (None, "to which rows are added as a partition. Name it, with option('partition', '2026-01-02')"),
        ("2026-01-01", "which has a partition '2026-01-01', of version 1. Replace it with mode('overwrite')"),
    ],
)
def test_what_would_be_added_a_second_time_is_refused(spark, grown, partition, told):
    with pytest.raises(Exception) as caught:
        write(day(spark, 1), grown, partition, mode="append")
    assert told in (reason(caught.value) or "")


def test_a_write_without_a_partition_replaces_them_all(spark, grown):
    assert list(write(day(spark, 3), grown, None).partitions) == [""]
    assert ids(spark, grown) == [*range(3000, 3040)]
    assert ids(spark, grown, version="2") == [*range(1000, 1040), *range(2000, 2040)]


def test_of_two_writers_of_different_partitions_both_win(spark, tmp_path):
    process = waiting(tmp_path, "a")
    write(numbers(spark), tmp_path / "d", "b")
    (tmp_path / "go").write_text("go")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert list(manifest.read_current(str(tmp_path / "d")).partitions) == ["a", "b"]
    assert manifest.read_current(str(tmp_path / "d")).rows == 1040
    assert versions.unreferenced(str(tmp_path / "d")) == []


def test_of_two_writers_of_one_partition_the_first_wins(spark, tmp_path):
    process = waiting(tmp_path, "a")
    write(numbers(spark), tmp_path / "d", "a")
    (tmp_path / "go").write_text("go")
    output, _ = process.communicate()
    assert process.returncode != 0
    assert f"partition 'a' of {tmp_path}/d was written by application write " in output
    assert manifest.read_current(str(tmp_path / "d")).rows == 40
    assert versions.unreferenced(str(tmp_path / "d")) == []


def numbers(spark):
    """Rows with the columns of those that the waiting writer has."""
    return spark.range(40).selectExpr("id", "double(id) as x", "'train' as split")


def waiting(tmp_path, partition):
    """A writer of its own that is about to commit."""
    os.mkfifo(tmp_path / "ready")
    os.mkfifo(tmp_path / "go")
    process = start("compete", tmp_path / "d", partition)
    assert (tmp_path / "ready").read_text() == "compete"
    return process


def test_a_version_that_is_read_does_not_expire(spark, grown):
    dataset = str(grown)
    write(day(spark, 1), grown, "2026-01-01")
    now = time.time() + versions.DAY
    with versions.leased(dataset, 2, "reader"):
        assert versions.expire(dataset, keep=1, days=0, now=now) == [1]
        assert ids(spark, grown, version="2") == [*range(1000, 1040), *range(2000, 2040)]
    assert versions.expire(dataset, keep=1, days=2, now=now) == [], "it was replaced a day ago"
    assert versions.expire(dataset, keep=1, days=0, now=now) == [2]
    assert manifest.list_versions(dataset) == [3]
    assert ids(spark, grown) == [*range(1000, 1040), *range(2000, 2040)]
    assert len(storage.list_names(storage.join(dataset, "shards"))) == 2
    assert main(["dataset", "verify", dataset]) == 0
