"""`df.write.format("trainyard")` and `spark.read.format("trainyard")`."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from trainyard.errors import reason
from trainyard.schemas import manifest, versions

pytestmark = pytest.mark.spark

SCHEMA = (
    "key string, image array<float>, label int, price double, ok boolean, small tinyint, "
    "tokens array<bigint>, raw binary, day date, at timestamp, wall timestamp_ntz, split string"
)


def row(i: int) -> tuple:
    at = datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=i, microseconds=i)
    return (
        f"k{i}", [i + j / 8 for j in range(4)], i % 3, i * math.pi, i % 2 == 0, i % 100, list(range(i % 5)),
        None if i % 7 == 0 else bytes([i % 256]), None if i % 5 == 0 else at.date(), at, at,
        ("train", "test", "train")[i % 3],
    )  # fmt: skip


def frame(spark, rows=200, partitions=3):
    return spark.createDataFrame([row(i) for i in range(rows)], SCHEMA).repartition(partitions, "key")


def write(df, path, mode="append", **options):
    given = {"splitColumn": "split", "shapes": '{"image": [2, 2]}', "variable_length": "tokens", "rowsPerBatch": "32"}
    given = {name: value for name, value in given.items() if name != "splitColumn" or "split" in df.columns}
    chosen = {name: value for name, value in (given | options).items() if value is not None}
    df.write.format("trainyard").mode(mode).options(**chosen).save(str(path))
    return manifest.read_current(str(path))


def plain(df, path, **options):
    return write(df, path, shapes=None, variable_length=None, splitColumn=None, **options)


def read(spark, path, **options):
    return spark.read.format("trainyard").options(**options).load(str(path))


def refusal(call, *arguments, **options) -> str:
    with pytest.raises(Exception) as caught:
        call(*arguments, **options)
    message = reason(caught.value)
    assert message is not None, caught.value
    return message


def shard_paths(dataset, split=None):
    return [s.path for name, part in dataset.splits.items() if split in (None, name) for s in part.shards]


def test_what_is_read_equals_what_was_written(spark, tmp_path):
    source = frame(spark)
    write(source, tmp_path / "d")
    back = read(spark, tmp_path / "d")
    assert [(f.name, f.dataType) for f in back.schema] == [(f.name, f.dataType) for f in source.drop("split").schema]
    assert sorted(back.collect()) == sorted(source.drop("split").collect())


def test_one_split_is_read_by_name(spark, tmp_path):
    write(frame(spark), tmp_path / "d")
    found = {r.key for r in read(spark, tmp_path / "d", split="test").collect()}
    assert found == {f"k{i}" for i in range(200) if i % 3 == 1}


def test_rows_keep_their_order_within_a_split_when_splits_interleave(spark, tmp_path):
    write(spark.createDataFrame([row(i) for i in range(100)], SCHEMA).coalesce(1), tmp_path / "d")
    found = [r.key for r in read(spark, tmp_path / "d", split="train").collect()]
    assert found == [f"k{i}" for i in range(100) if i % 3 != 1]


def test_pyarrow_reads_a_shard_by_itself(spark, tmp_path):
    write(frame(spark, partitions=1), tmp_path / "d")
    dataset = manifest.read_current(str(tmp_path / "d"))
    table = pa.ipc.open_file(pa.memory_map(str(tmp_path / "d" / shard_paths(dataset, "test")[0]))).read_all()
    assert table.schema.field("image").type == pa.fixed_shape_tensor(pa.float32(), (2, 2))
    images = table["image"].combine_chunks().to_numpy_ndarray()
    for key, image, tokens in zip(table["key"].to_pylist(), images, table["tokens"].to_pylist(), strict=True):
        expected = row(int(key[1:]))
        assert image.tolist() == np.reshape(expected[1], (2, 2)).tolist()
        assert tokens == expected[6]


def test_the_manifest_tells_hash_size_and_record_batches_of_each_shard(spark, tmp_path):
    dataset = write(frame(spark), tmp_path / "d")
    for split in dataset.splits.values():
        for shard in split.shards:
            data = (tmp_path / "d" / shard.path).read_bytes()
            assert (shard.bytes, shard.sha256) == (len(data), hashlib.sha256(data).hexdigest())
            file = pa.ipc.open_file(data)
            assert [b.rows for b in shard.batches] == [
                file.get_batch(i).num_rows for i in range(file.num_record_batches)
            ]
            for index, place in enumerate(shard.batches):
                message = pa.ipc.read_message(data[place.offset : place.offset + place.length])
                assert pa.ipc.read_record_batch(message, file.schema).equals(file.get_batch(index))


def test_record_batches_are_full_but_the_last_whatever_spark_hands_over(spark, tmp_path):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        dataset = write(frame(spark, partitions=1), tmp_path / "d", rowsPerBatch="20")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    rows = [batch.rows for shard in dataset.splits["train"].shards for batch in shard.batches]
    assert set(rows[:-1]) == {20}
    assert sum(rows) == dataset.splits["train"].rows


def test_statistics_are_those_of_numpy(spark, tmp_path):
    dataset = write(frame(spark), tmp_path / "d")
    rows = [row(i) for i in range(200) if i % 3 != 1]
    found = dataset.splits["train"].statistics
    images = np.array([r[1] for r in rows], np.float32).astype(np.float64)
    np.testing.assert_allclose(found["image"].mean, images.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found["image"].std, images.std(0), rtol=1e-12)
    assert found["label"].values == {"0": 67, "2": 66}
    np.testing.assert_allclose(found["price"].std[0], np.std([r[3] for r in rows]), rtol=1e-12)
    assert found["ok"].values == {"false": 66, "true": 67}
    tokens = [token for r in rows for token in r[6]]
    assert (found["tokens"].count, found["tokens"].max) == (len(tokens), (3.0,))
    assert found["raw"].nulls == sum(r[7] is None for r in rows)


def test_the_same_rows_have_the_same_content_hash_in_another_place(spark, tmp_path):
    one, other = write(frame(spark), tmp_path / "a"), write(frame(spark), tmp_path / "b")
    assert one.content_hash == other.content_hash
    assert write(frame(spark, rows=199), tmp_path / "c").content_hash != one.content_hash


def test_splits_stand_in_declared_order(spark, tmp_path):
    assert list(write(frame(spark), tmp_path / "a", splits="train,test").splits) == ["train", "test"]
    assert list(write(frame(spark), tmp_path / "b", splits="test,train").splits) == ["test", "train"]


def test_without_a_split_column_all_rows_are_in_train(spark, tmp_path):
    assert list(write(frame(spark).drop("split"), tmp_path / "d").splits) == ["train"]


def test_a_shard_rolls_over_when_it_is_large(tmp_path, monkeypatch):
    from trainyard.etl.datasource import shards
    from trainyard.etl.datasource.columns import Field

    monkeypatch.setattr(shards, "ROLL_OVER", 2500)
    field = Field("x", "scalar", pa.int64(), ())
    writer = shards.SplitWriter(str(tmp_path), lambda sequence: f"{sequence}.arrow", (field,), 100)
    for start in range(0, 1000, 50):
        writer.add(pa.record_batch({"x": pa.array(range(start, start + 50))}))
    written = writer.close()
    assert [shard.rows for shard in written] == [300, 300, 300, 100]
    read_back = [pa.ipc.open_file(pa.memory_map(str(tmp_path / s.path))).read_all() for s in written]
    assert pa.concat_tables(read_back)["x"].to_pylist() == list(range(1000))


def test_append_to_a_dataset_without_a_partition_is_refused_and_says_overwrite(spark, tmp_path):
    write(frame(spark), tmp_path / "d")
    message = refusal(write, frame(spark), tmp_path / "d")
    assert "rows are added as a partition" in message and "mode('overwrite')" in message


def test_a_reader_of_the_old_version_works_on_after_an_overwrite(spark, tmp_path):
    write(frame(spark), tmp_path / "d")
    old = read(spark, tmp_path / "d")
    write(frame(spark, rows=10), tmp_path / "d", mode="overwrite")
    assert old.count() == 200
    assert read(spark, tmp_path / "d").count() == 10
    assert manifest.read_current(str(tmp_path / "d")).number == 2


def test_shards_that_expired_under_a_reader_are_named_as_missing(spark, tmp_path):
    write(frame(spark), tmp_path / "d")
    old = read(spark, tmp_path / "d")
    write(frame(spark), tmp_path / "d", mode="overwrite")
    versions.expire(str(tmp_path / "d"), keep=1, days=0)
    assert "Load the dataset anew" in refusal(old.collect)


def test_a_write_that_fails_leaves_the_dataset_as_it_was(spark, tmp_path):
    before = write(frame(spark), tmp_path / "d")
    files = sorted((tmp_path / "d").rglob("*.*"))
    refusal(write, frame(spark).withColumn("price", F.lit(float("nan"))), tmp_path / "d", mode="overwrite")
    assert manifest.read_current(str(tmp_path / "d")) == before
    assert sorted((tmp_path / "d").rglob("*.*")) == files


@pytest.mark.parametrize(("value", "shown"), [("nan", "nan"), ("inf", "inf"), ("-inf", "-inf")])
def test_a_value_that_is_not_finite_is_named_with_its_row(spark, tmp_path, value, shown):
    bad = F.when(F.col("key") == "k77", float(value)).otherwise(F.col("price"))
    message = refusal(write, frame(spark).withColumn("price", bad), tmp_path / "d")
    assert f"column 'price' holds {shown} in the row with key='k77'" in message


def test_a_tensor_element_that_is_not_finite_is_named_with_its_row(spark, tmp_path):
    poison = F.transform("image", lambda x: F.when(F.col("key") == "k42", float("nan")).otherwise(x).cast("float"))
    assert "column 'image' holds nan in the row with key='k42'" in refusal(
        write, frame(spark).withColumn("image", poison), tmp_path / "d"
    )


def test_a_row_without_keys_is_named_by_its_place(spark, tmp_path):
    values = spark.range(10, numPartitions=1).select(F.when(F.col("id") == 6, float("nan")).otherwise(1.0).alias("x"))
    assert "row 6 of partition 0" in refusal(plain, values, tmp_path / "d")


@pytest.mark.parametrize("column", ["label", "ok", "image", "tokens"])
def test_a_null_is_named_with_its_row(spark, tmp_path, column):
    bad = F.when(F.col("key") != "k13", F.col(column))
    message = refusal(write, frame(spark).withColumn(column, bad), tmp_path / "d")
    assert f"column {column!r} is null" in message and "key='k13'" in message and "dropna" in message


def test_a_null_inside_an_array_is_named_with_its_row(spark, tmp_path):
    bad = F.transform("image", lambda x: F.when(F.col("key") != "k13", x))
    message = refusal(write, frame(spark).withColumn("image", bad), tmp_path / "d")
    assert "column 'image' is null, or holds a null, in the row with key='k13'" in message


def test_a_shape_unlike_the_first_rows_is_named_with_both(spark, tmp_path):
    rows = spark.createDataFrame(
        [(f"k{i}", [1.0] * (5 if i == 8 else 4)) for i in range(10)], "key string, x array<double>"
    )
    message = refusal(plain, rows.coalesce(1), tmp_path / "d")
    assert "column 'x' has 5 values in the row with key='k8' but 4 as in the row with key='k0'" in message


def test_a_shape_unlike_the_declared_one_is_named(spark, tmp_path):
    message = refusal(write, frame(spark), tmp_path / "d", shapes='{"image": [3, 3]}')
    assert "column 'image' has 4 values" in message and "9 (shape [3, 3])" in message


def test_shapes_that_differ_between_tasks_are_refused(spark, tmp_path):
    rows = spark.range(2, numPartitions=2).selectExpr("concat('k', id) as key", "array_repeat(1.0d, int(id) + 1) as x")
    message = refusal(plain, rows, tmp_path / "d")
    assert "key='k0'" in message and "key='k1'" in message and "in partition 1" in message
    assert not (tmp_path / "d" / "manifest.json").exists()


def test_an_empty_array_cannot_be_a_tensor(spark, tmp_path):
    rows = spark.createDataFrame([("a", [])], "key string, x array<double>")
    assert "column 'x' is an empty array in the row with key='a'" in refusal(plain, rows, tmp_path / "d")


@pytest.mark.parametrize(
    ("column", "advice"),
    [
        ("struct(label, ok)", "select its fields"),
        ("map(key, label)", "select the entries"),
        ("cast(price as decimal(9,2))", "cast it to double"),
        ("array(image, image)", "flatten"),
        ("array(key)", "flatten"),
    ],
)
def test_an_unsupported_type_is_refused_with_those_that_are_supported(spark, tmp_path, column, advice):
    message = refusal(write, frame(spark).withColumn("bad", F.expr(column)), tmp_path / "d")
    assert "column 'bad' is of type" in message and "Supported are" in message and advice in message


def test_no_rows_are_refused(spark, tmp_path):
    assert "there are no rows to write" in refusal(write, frame(spark).limit(0), tmp_path / "d")


def test_a_split_without_rows_is_refused(spark, tmp_path):
    message = refusal(write, frame(spark), tmp_path / "d", splits="train,test,validation")
    assert "split 'validation' has no rows: 200 rows went to test, train" in message
    assert list((tmp_path / "d").rglob("*.arrow")) == []


def test_a_split_that_was_not_declared_is_refused(spark, tmp_path):
    assert "names the split 'test'; declared are train" in refusal(write, frame(spark), tmp_path / "d", splits="train")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shapes": '{"nope": [1]}'}, "shapes names the column 'nope', which is not there; there are key, image"),
        ({"variable_length": "nope"}, "lists names the column 'nope'"),
        ({"splitColumn": "nope"}, "splitColumn names the column 'nope'"),
        ({"splitColumn": "label"}, "is of type int; it must be a string"),
        ({"variable_length": "tokens,label"}, "lists names the column 'label', which is a int, no array"),
        ({"shapes": "[1]"}, "is not JSON like"),
        ({"rowsPerBatch": "0"}, "rowsPerBatch='0' is not a positive whole number"),
        ({"rowsPerBach": "5"}, "is not an option for writing batches; there are path, splitColumn"),
        ({"splits": "tr/ain"}, "'tr/ain' cannot name a split"),
        ({"provenance": "{}"}, "application is missing"),
    ],
)
def test_a_bad_option_is_refused_before_any_task_runs(spark, tmp_path, options, message):
    assert message in refusal(write, frame(spark), tmp_path / "d", **options)
    assert not (tmp_path / "d").exists()


def test_elements_of_a_list_have_the_shape_that_is_given(spark, tmp_path):
    rows = [(f"k{i}", [float(v) for v in range(6 * i)]) for i in range(5)]
    frames = spark.createDataFrame(rows, "key string, frames array<double>").coalesce(1)
    found = write(frames, tmp_path / "d", variable_length="frames", shapes='{"frames": [2, 3]}')
    column = found.column("frames")
    assert (column.kind, column.shape) == ("list", (2, 3))
    figures = found.split("train").statistics["frames"]
    elements = np.concatenate([np.arange(6 * i, dtype=float).reshape(-1, 6) for i in range(5)])
    assert (figures.count, figures.mean) == (10, tuple(elements.mean(0)))
    assert sorted(read(spark, tmp_path / "d").collect()) == sorted(rows)


def test_a_list_that_holds_a_part_of_an_element_is_named(spark, tmp_path):
    rows = spark.createDataFrame([("a", [1.0] * 6), ("b", [1.0] * 7)], "key string, frames array<double>").coalesce(1)
    message = refusal(write, rows, tmp_path / "d", variable_length="frames", shapes='{"frames": [2, 3]}')
    assert (
        "'frames' has 7 values in the row with key='b', which is no whole number of elements of shape [2, 3]" in message
    )


def test_two_columns_of_one_name_are_refused(spark):
    from trainyard.etl.datasource import columns
    from trainyard.etl.datasource.options import WriteOptions

    schema = StructType([StructField("a", IntegerType()), StructField("a", IntegerType())])
    assert "2 columns named 'a'" in refusal(columns.fields, schema, WriteOptions(path="d"))


def test_a_truncated_shard_is_named_with_both_lengths(spark, tmp_path):
    dataset = write(frame(spark), tmp_path / "d")
    path = shard_paths(dataset)[0]
    file = Path(tmp_path / "d" / path)
    length = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-100])
    message = refusal(read(spark, tmp_path / "d").collect)
    assert path in message and f"{length - 100:,} bytes" in message and f"{length:,}" in message


def test_an_altered_shard_is_found_when_asked_to_verify(spark, tmp_path):
    dataset = write(frame(spark), tmp_path / "d")
    path = shard_paths(dataset)[0]
    file = Path(tmp_path / "d" / path)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    message = refusal(read(spark, tmp_path / "d", verify="true").collect)
    assert f"shard {path}" in message and "was altered: its sha256 is" in message


def test_a_place_without_a_dataset_is_refused(spark, tmp_path):
    assert "is not a dataset" in refusal(read, spark, tmp_path)


def test_a_manifest_of_a_newer_version_is_refused(spark, tmp_path):
    write(frame(spark), tmp_path / "d")
    file = tmp_path / "d" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 99}))
    assert "version 99" in refusal(read, spark, tmp_path / "d")


def test_an_unknown_split_is_refused_with_those_there_are(spark, tmp_path):
    write(frame(spark), tmp_path / "d")
    assert "no split 'nope'; it has test, train" in refusal(read(spark, tmp_path / "d", split="nope").collect)
