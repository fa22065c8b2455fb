"""A scan of a dataset gives a function the rows of the DataFrame, in the process that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from trainyard.errors import TrainyardError
from trainyard.etl.scoring.scan import DatasetScan, map_batches, merge_batches, select

ROWS, SHARDS = 101, 3


@pytest.fixture(scope="module")
def dataset(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a dataset with a column of each kind, of two splits and two versions."""
    uri = str(tmp_path_factory.mktemp("scan") / "dataset")
    frame = spark.range(0, ROWS, 1, SHARDS).selectExpr(
        "id as key", "concat('k', id) as name", "array(cast(id as float), 1f) as x", "encode(name, 'utf-8') as file",
        "transform(sequence(0, id % 4), i -> cast(i as int)) as tokens", "if(id % 5 = 0, 'test', 'train') as split",
    )  # fmt: skip
    for version in (frame.where("key < 7"), frame):
        version.write.format("trainyard").mode("overwrite").options(
            splitColumn="split", variableLength="tokens", rowsPerBatch="10"
        ).save(uri)
    return uri


def collect(rows: Any, columns: list[str]) -> Any:
    """Return the rows that a task is given, as it is given them."""
    schema = StructType([rows.schema[name] for name in columns])
    return sorted(map_batches(rows, columns, lambda batches: iter(batches), schema).collect())


@pytest.mark.spark
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"split": "train", "verify": "true"},
        *(pytest.param(options, marks=pytest.mark.full) for options in ({"split": "test"}, {"version": "1"})),
    ],
)
def test_a_function_is_given_the_rows_of_the_dataframe(spark: Any, dataset: str, options: dict[str, str]) -> None:
    frame = spark.read.format("trainyard").options(**options).load(dataset)
    columns = ["tokens", "x", "file", "key", "name"]
    scan = DatasetScan(spark, dataset, options)
    assert collect(scan, columns) == collect(frame, columns)
    for rows in (scan, frame):
        assert sorted(select(rows, columns).collect()) == sorted(frame.select(*columns).collect()) != []


@pytest.mark.spark
def test_timestamps_are_in_utc_whatever_the_time_zone_of_the_session(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(2).selectExpr("id", "timestamp_seconds(id * 3600) as at")
    frame.write.format("trainyard").mode("append").save(str(tmp_path / "dataset"))

    def name(batches: Any) -> Any:
        for batch in batches:
            yield pa.record_batch({"name": batch.column("at").cast(pa.string())})

    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        schema = from_arrow_schema(pa.schema({"name": pa.string()}))
        for rows in (DatasetScan(spark, str(tmp_path / "dataset")), frame):
            names = sorted(row.name for row in map_batches(rows, ["at"], name, schema).collect())
            assert names == ["1970-01-01 00:00:00.000000Z", "1970-01-01 01:00:00.000000Z"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.spark
def test_the_process_that_applies_the_function_has_the_shard_open(spark: Any, dataset: str) -> None:
    def find_shards(batches: Any) -> Any:
        for batch in batches:
            maps = Path("/proc/self/maps").read_text()
            yield pa.record_batch({"open": [dataset in maps] * batch.num_rows})

    schema = from_arrow_schema(pa.schema({"open": pa.bool_()}))
    seen = map_batches(DatasetScan(spark, dataset), ["key"], find_shards, schema).collect()
    assert [row.open for row in seen] == [True] * ROWS
    frame = spark.read.format("trainyard").load(dataset)
    assert not any(row.open for row in map_batches(frame, ["key"], find_shards, schema).collect())


@pytest.mark.spark
def test_nulls_of_a_partition_are_scanned_although_another_has_none(spark: Any, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1, None), (2, "b")], "id long, name string").coalesce(1)
    for partition, part in (("a", rows), ("b", rows.fillna({"name": ""}))):
        write = part.write.format("trainyard").mode("overwrite").option("partition", partition)
        write.save(str(tmp_path / "dataset"))
    scan = DatasetScan(spark, str(tmp_path / "dataset"))
    scanned = map_batches(scan, ["name"], lambda batches: iter(batches), StructType([scan.schema["name"]]))
    assert scanned.where("name is null").count() == 1
    assert sorted(row.name or "-" for row in scanned.selectExpr("coalesce(name, 'none') as name").collect()) == [
        "-", "b", "b", "none",
    ]  # fmt: skip


@pytest.mark.spark
def test_a_scan_continues_to_read_the_version_that_it_began_with(spark: Any, tmp_path: Path) -> None:
    uri = str(tmp_path / "dataset")
    spark.range(5).write.format("trainyard").mode("overwrite").save(uri)
    scan = DatasetScan(spark, uri)
    spark.range(9).write.format("trainyard").mode("overwrite").save(uri)
    assert len(collect(scan, ["id"])) == select(scan, ["id"]).count() == 5


@pytest.mark.spark
def test_a_function_is_given_batches_of_the_smallest_size_or_more(spark: Any, dataset: str) -> None:
    def count(batches: Any) -> Any:
        yield pa.record_batch({"rows": [batch.num_rows for batch in batches]})

    schema = from_arrow_schema(pa.schema({"rows": pa.int64()}))
    scan = DatasetScan(spark, dataset)
    for scan.batch_rows, most in ((1, 10), (25, 30), (1000, ROWS)):
        sizes = [row.rows for row in map_batches(scan, ["key"], count, schema).collect()]
        assert sum(sizes) == ROWS and max(sizes) <= most
        assert sum(size < scan.batch_rows for size in sizes) <= 2 * SHARDS, "only the last batch of a shard is smaller"


@pytest.mark.spark
def test_an_altered_shard_is_named(spark: Any, tmp_path: Path) -> None:
    uri = tmp_path / "dataset"
    spark.range(50).write.format("trainyard").mode("overwrite").save(str(uri))
    shard = next(uri.rglob("*.arrow"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    scan = DatasetScan(spark, str(uri), {"verify": "true"})
    with pytest.raises(Exception, match=f"{shard.name} of .* was altered"):
        collect(scan, ["id"])


@pytest.mark.spark
def test_what_does_not_exist_is_refused_before_a_task_runs(spark: Any, dataset: str) -> None:
    scan = DatasetScan(spark, dataset, {"split": "other"})
    with pytest.raises(TrainyardError, match="'other'"):
        scan.map_batches(["key"], iter, scan.schema)
    with pytest.raises(TrainyardError, match="version"):
        DatasetScan(spark, dataset, {"version": "77"})


@pytest.mark.spark
def test_names_of_columns_may_have_any_character(spark: Any) -> None:
    frame = spark.range(3).selectExpr("id as `petal.length`", "id + 1 as `a ``b``, c`", "id as other")
    assert collect(frame, ["a `b`, c", "petal.length"]) == [(1, 0), (2, 1), (3, 2)]


@given(st.lists(st.integers(0, 7), max_size=12), st.integers(1, 20))
def test_merged_batches_have_all_rows_in_order_and_are_large_enough(sizes: list[int], rows: int) -> None:
    numbers = iter(range(sum(sizes)))
    batches = [pa.record_batch({"x": pa.array([next(numbers) for _ in range(size)], pa.int64())}) for size in sizes]
    merged = list(merge_batches(batches, rows))
    assert [x for batch in merged for x in batch.column("x").to_pylist()] == list(range(sum(sizes)))
    assert all(batch.num_rows >= rows for batch in merged[:-1])
    assert all(batch.num_rows < rows + 7 for batch in merged)
