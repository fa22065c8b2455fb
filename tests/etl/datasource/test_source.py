"""Datasets are written with `df.write.format("trainyard")` and read with `spark.read.format("trainyard")`."""

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

from trainyard.errors import TrainyardError, reason
from trainyard.etl.datasource import source
from trainyard.schemas.datasets import manifest, versions

pytestmark = pytest.mark.spark

SCHEMA = (
    "key string, image array<float>, label int, price double, ok boolean, small tinyint, "
    "tokens array<bigint>, raw binary, day date, at timestamp, wall timestamp_ntz, split string"
)


def make_row(i: int) -> tuple:
    at = datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=i, microseconds=i)
    return (
        f"k{i}", [i + j / 8 for j in range(4)], i % 3, i * math.pi, i % 2 == 0, i % 100, list(range(i % 5)),
        None if i % 7 == 0 else bytes([i % 256]), None if i % 5 == 0 else at.date(), at, at,
        ("train", "test", "train")[i % 3],
    )  # fmt: skip


def make_frame(spark, rows=200, partitions=3):
    return spark.createDataFrame([make_row(i) for i in range(rows)], SCHEMA).repartition(partitions, "key")


def write(frame, path, mode="append", **options):
    defaults = {"splitColumn": "split", "shapes": '{"image": [2, 2]}', "variableLength": "tokens", "rowsPerBatch": "32"}
    if "split" not in frame.columns:
        defaults.pop("splitColumn")
    texts = {name: value for name, value in (defaults | options).items() if value is not None}
    frame.write.format("trainyard").mode(mode).options(**texts).save(str(path))
    return manifest.read_current(str(path))


def write_without_options(frame, path):
    return write(frame, path, shapes=None, variableLength=None, splitColumn=None)


def read(spark, path, **options):
    return spark.read.format("trainyard").options(**options).load(str(path))


def get_error(call, *arguments, **options) -> str:
    with pytest.raises(Exception) as caught:
        call(*arguments, **options)
    message = reason(caught.value)
    assert message is not None, caught.value
    return message


def shard_paths(dataset, split=None):
    return [s.path for name, part in dataset.splits.items() if split in (None, name) for s in part.shards]


def test_rows_are_read_as_they_were_written(spark, tmp_path):
    source = make_frame(spark)
    write(source, tmp_path / "d")
    read_back = read(spark, tmp_path / "d")
    assert [(f.name, f.dataType) for f in read_back.schema] == [
        (f.name, f.dataType) for f in source.drop("split").schema
    ]
    assert sorted(read_back.collect()) == sorted(source.drop("split").collect())


def test_one_split_is_read_by_name(spark, tmp_path):
    write(make_frame(spark), tmp_path / "d")
    keys = {r.key for r in read(spark, tmp_path / "d", split="test").collect()}
    assert keys == {f"k{i}" for i in range(200) if i % 3 == 1}


def test_rows_keep_their_order_within_a_split_when_splits_interleave(spark, tmp_path):
    write(spark.createDataFrame([make_row(i) for i in range(100)], SCHEMA).coalesce(1), tmp_path / "d")
    keys = [r.key for r in read(spark, tmp_path / "d", split="train").collect()]
    assert keys == [f"k{i}" for i in range(100) if i % 3 != 1]


def test_pyarrow_reads_a_shard_by_itself(spark, tmp_path):
    write(make_frame(spark, partitions=1), tmp_path / "d")
    dataset = manifest.read_current(str(tmp_path / "d"))
    table = pa.ipc.open_file(pa.memory_map(str(tmp_path / "d" / shard_paths(dataset, "test")[0]))).read_all()
    assert table.schema.field("image").type == pa.fixed_shape_tensor(pa.float32(), (2, 2))
    images = table["image"].combine_chunks().to_numpy_ndarray()
    for key, image, tokens in zip(table["key"].to_pylist(), images, table["tokens"].to_pylist(), strict=True):
        expected = make_row(int(key[1:]))
        assert image.tolist() == np.reshape(expected[1], (2, 2)).tolist()
        assert tokens == expected[6]


def test_the_manifest_has_hash_size_and_record_batches_of_each_shard(spark, tmp_path):
    dataset = write(make_frame(spark), tmp_path / "d")
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


def test_all_record_batches_but_the_last_are_full_for_any_batches_from_spark(spark, tmp_path):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        dataset = write(make_frame(spark, partitions=1), tmp_path / "d", rowsPerBatch="20")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    rows = [batch.rows for shard in dataset.splits["train"].shards for batch in shard.batches]
    assert set(rows[:-1]) == {20}
    assert sum(rows) == dataset.splits["train"].rows


def test_statistics_equal_those_of_numpy(spark, tmp_path):
    dataset = write(make_frame(spark), tmp_path / "d")
    rows = [make_row(i) for i in range(200) if i % 3 != 1]
    statistics = dataset.splits["train"].statistics
    images = np.array([r[1] for r in rows], np.float32).astype(np.float64)
    np.testing.assert_allclose(statistics["image"].mean, images.mean(0), rtol=1e-12)
    np.testing.assert_allclose(statistics["image"].std, images.std(0), rtol=1e-12)
    assert statistics["label"].values == {"0": 67, "2": 66}
    np.testing.assert_allclose(statistics["price"].std[0], np.std([r[3] for r in rows]), rtol=1e-12)
    assert statistics["ok"].values == {"false": 66, "true": 67}
    tokens = [token for r in rows for token in r[6]]
    assert (statistics["tokens"].count, statistics["tokens"].max) == (len(tokens), (3.0,))
    assert statistics["raw"].nulls == sum(r[7] is None for r in rows)


def test_the_same_rows_have_the_same_content_hash_at_another_path(spark, tmp_path):
    one, other = write(make_frame(spark), tmp_path / "a"), write(make_frame(spark), tmp_path / "b")
    assert one.content_hash == other.content_hash
    assert write(make_frame(spark, rows=199), tmp_path / "c").content_hash != one.content_hash


def test_splits_are_in_declared_order(spark, tmp_path):
    assert list(write(make_frame(spark), tmp_path / "a", splits="train,test").splits) == ["train", "test"]
    assert list(write(make_frame(spark), tmp_path / "b", splits="test,train").splits) == ["test", "train"]


def test_without_a_split_column_all_rows_are_in_train(spark, tmp_path):
    assert list(write(make_frame(spark).drop("split"), tmp_path / "d").splits) == ["train"]


def test_a_new_shard_begins_when_one_is_large(tmp_path, monkeypatch):
    from trainyard.etl.datasource.columns import Field
    from trainyard.etl.datasource.writing import shards

    monkeypatch.setattr(shards, "MAX_SHARD_BYTES", 2500)
    field = Field("x", "scalar", pa.int64(), ())
    writer = shards.SplitWriter(str(tmp_path), lambda sequence: f"{sequence}.arrow", (field,), 100)
    for start in range(0, 1000, 50):
        writer.add(pa.record_batch({"x": pa.array(range(start, start + 50))}))
    written = writer.close()
    assert [shard.rows for shard in written] == [300, 300, 300, 100]
    read_back = [pa.ipc.open_file(pa.memory_map(str(tmp_path / s.path))).read_all() for s in written]
    assert pa.concat_tables(read_back)["x"].to_pylist() == list(range(1000))


def test_append_to_a_dataset_without_a_partition_is_refused(spark, tmp_path):
    write(make_frame(spark), tmp_path / "d")
    message = get_error(write, make_frame(spark), tmp_path / "d")
    assert "rows can only be appended as a partition" in message and "mode('overwrite')" in message


def test_a_reader_of_the_old_version_still_works_after_an_overwrite(spark, tmp_path):
    write(make_frame(spark), tmp_path / "d")
    old = read(spark, tmp_path / "d")
    write(make_frame(spark, rows=10), tmp_path / "d", mode="overwrite")
    assert old.count() == 200
    assert read(spark, tmp_path / "d").count() == 10
    assert manifest.read_current(str(tmp_path / "d")).number == 2


def test_expired_shards_of_a_reader_are_named_as_missing(spark, tmp_path):
    write(make_frame(spark), tmp_path / "d")
    old = read(spark, tmp_path / "d")
    write(make_frame(spark), tmp_path / "d", mode="overwrite")
    versions.expire(str(tmp_path / "d"), keep=1, days=0)
    assert "Load the dataset again" in get_error(old.collect)


def test_a_failed_write_leaves_the_dataset_unchanged(spark, tmp_path):
    before = write(make_frame(spark), tmp_path / "d")
    files = sorted((tmp_path / "d").rglob("*.*"))
    get_error(write, make_frame(spark).withColumn("price", F.lit(float("nan"))), tmp_path / "d", mode="overwrite")
    assert manifest.read_current(str(tmp_path / "d")) == before
    assert sorted((tmp_path / "d").rglob("*.*")) == files


@pytest.mark.parametrize(("value", "shown"), [("nan", "nan"), ("inf", "inf"), ("-inf", "-inf")])
def test_a_value_that_is_not_finite_is_named_with_its_row(spark, tmp_path, value, shown):
    bad = F.when(F.col("key") == "k77", float(value)).otherwise(F.col("price"))
    message = get_error(write, make_frame(spark).withColumn("price", bad), tmp_path / "d")
    assert f"column 'price' is {shown} in the row with key='k77'" in message


def test_a_tensor_element_that_is_not_finite_is_named_with_its_row(spark, tmp_path):
    poison = F.transform("image", lambda x: F.when(F.col("key") == "k42", float("nan")).otherwise(x).cast("float"))
    assert "column 'image' is nan in the row with key='k42'" in get_error(
        write, make_frame(spark).withColumn("image", poison), tmp_path / "d"
    )


def test_a_row_without_keys_is_named_by_its_position(spark, tmp_path):
    values = spark.range(10, numPartitions=1).select(F.when(F.col("id") == 6, float("nan")).otherwise(1.0).alias("x"))
    assert "row 6 of partition 0" in get_error(write_without_options, values, tmp_path / "d")


@pytest.mark.parametrize("column", ["label", "ok", "image", "tokens"])
def test_a_null_is_named_with_its_row(spark, tmp_path, column):
    bad = F.when(F.col("key") != "k13", F.col(column))
    message = get_error(write, make_frame(spark).withColumn(column, bad), tmp_path / "d")
    assert f"column {column!r} is null" in message and "key='k13'" in message and "dropna" in message


def test_a_null_inside_an_array_is_named_with_its_row(spark, tmp_path):
    bad = F.transform("image", lambda x: F.when(F.col("key") != "k13", x))
    message = get_error(write, make_frame(spark).withColumn("image", bad), tmp_path / "d")
    assert "column 'image' is null, or contains a null, in the row with key='k13'" in message


def test_a_row_with_another_shape_than_the_first_is_named_with_both(spark, tmp_path):
    rows = spark.createDataFrame(
        [(f"k{i}", [1.0] * (5 if i == 8 else 4)) for i in range(10)], "key string, x array<double>"
    )
    message = get_error(write_without_options, rows.coalesce(1), tmp_path / "d")
    assert "column 'x' has 5 values in the row with key='k8' but 4 in the row with key='k0'" in message


def test_a_row_with_another_shape_than_declared_is_named(spark, tmp_path):
    message = get_error(write, make_frame(spark), tmp_path / "d", shapes='{"image": [3, 3]}')
    assert "column 'image' has 4 values" in message and "9 (shape [3, 3])" in message


def test_shapes_that_differ_between_tasks_are_refused(spark, tmp_path):
    rows = spark.range(2, numPartitions=2).selectExpr("concat('k', id) as key", "array_repeat(1.0d, int(id) + 1) as x")
    message = get_error(write_without_options, rows, tmp_path / "d")
    assert "key='k0'" in message and "key='k1'" in message and "in partition 1" in message
    assert not (tmp_path / "d" / "manifest.json").exists()


def test_an_empty_array_cannot_be_a_tensor(spark, tmp_path):
    rows = spark.createDataFrame([("a", [])], "key string, x array<double>")
    assert "column 'x' is an empty array in the row with key='a'" in get_error(
        write_without_options, rows, tmp_path / "d"
    )


@pytest.mark.parametrize(
    ("column", "advice"),
    [
        ("struct(label, ok)", "select its fields"),
        ("map(key, label)", "select its entries"),
        ("cast(price as decimal(9,2))", "cast it to double"),
        ("array(image, image)", "flatten() it and set its shape in `shapes`"),
        ("array(array(price), array(price))", "flatten() it and set its shape in `shapes`"),
        ("array(cast(price as decimal(9,2)))", ": cast it to array<double>"),
        ("array(array(cast(price as decimal(9,2))))", ": flatten() it and cast it to array<double>"),
        ("cast(label as decimal(20,0))", "cast it to bigint, or to string if it has more than 18 digits"),
        ("array(key)", "make one text of it with concat_ws"),
        ("array(current_date())", "make numbers of its elements with transform()"),
    ],
)
def test_an_unsupported_type_is_refused_with_the_supported_ones(spark, tmp_path, column, advice):
    message = get_error(write, make_frame(spark).withColumn("bad", F.expr(column)), tmp_path / "d")
    assert "column 'bad' has type" in message and "Supported types are" in message and advice in message


def test_what_is_advised_for_arrays_gives_columns_that_can_be_stored(spark):
    texts, images = F.array("key", "key"), F.array("image", "image")
    hashes = F.transform(texts, lambda text: F.pmod(F.hash(text), F.lit(1000)))
    days = F.transform(F.array(F.current_date()), lambda day: F.unix_date(day))
    advised = make_frame(spark).select(F.concat_ws(" ", texts), hashes, days, F.flatten(images)).limit(1)
    assert [row.simpleString() for row in (field.dataType for field in advised.schema)] == [
        "string", "array<int>", "array<int>", "array<float>",
    ]  # fmt: skip
    assert all(0 <= number < 1000 for number in advised.collect()[0][1])


def test_a_write_without_rows_is_refused(spark, tmp_path):
    assert "there are no rows to write" in get_error(write, make_frame(spark).limit(0), tmp_path / "d")


def test_a_split_without_rows_is_refused(spark, tmp_path):
    message = get_error(write, make_frame(spark), tmp_path / "d", splits="train,test,validation")
    assert "split 'validation' has no rows: 200 rows are in test, train" in message
    assert list((tmp_path / "d").rglob("*.arrow")) == []


def test_an_undeclared_split_is_refused(spark, tmp_path):
    assert "contains the split 'test', but `splits` declares train" in get_error(
        write, make_frame(spark), tmp_path / "d", splits="train"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shapes": '{"nope": [1]}'}, "shapes names the column 'nope', which does not exist; columns are key, image"),
        ({"variableLength": "nope"}, "variableLength names the column 'nope'"),
        ({"splitColumn": "nope"}, "splitColumn names the column 'nope'"),
        ({"splitColumn": "label"}, "has type int; cast it to string"),
        (
            {"variableLength": "tokens,label"},
            "variableLength names the column 'label' of type int; it applies to arrays only",
        ),
        ({"shapes": "[1]"}, "is not valid; use JSON"),
        ({"rowsPerBatch": "0"}, "rowsPerBatch='0' is not valid; use an integer of at least 1"),
        ({"rowsPerBach": "5"}, "is not an option for writing a dataset; options are path, splitColumn"),
        ({"splits": "tr/ain"}, "'tr/ain' is not a valid name of a split"),
        ({"provenance": "{}"}, "application is missing"),
    ],
)
def test_a_bad_option_is_refused_before_any_task_runs(spark, tmp_path, options, message):
    assert message in get_error(write, make_frame(spark), tmp_path / "d", **options)
    assert not (tmp_path / "d").exists()


def test_elements_of_a_list_have_the_declared_shape(spark, tmp_path):
    rows = [(f"k{i}", [float(v) for v in range(6 * i)]) for i in range(5)]
    frames = spark.createDataFrame(rows, "key string, frames array<double>").coalesce(1)
    dataset = write(frames, tmp_path / "d", variableLength="frames", shapes='{"frames": [2, 3]}')
    column = dataset.column("frames")
    assert (column.kind, column.shape) == ("list", (2, 3))
    statistics = dataset.split("train").statistics["frames"]
    elements = np.concatenate([np.arange(6 * i, dtype=float).reshape(-1, 6) for i in range(5)])
    assert (statistics.count, statistics.mean) == (10, tuple(elements.mean(0)))
    assert sorted(read(spark, tmp_path / "d").collect()) == sorted(rows)


def test_a_list_with_a_partial_element_is_refused(spark, tmp_path):
    rows = spark.createDataFrame([("a", [1.0] * 6), ("b", [1.0] * 7)], "key string, frames array<double>").coalesce(1)
    message = get_error(write, rows, tmp_path / "d", variableLength="frames", shapes='{"frames": [2, 3]}')
    assert "'frames' has 7 values in the row with key='b', which is not a multiple of 6: `shapes` declares" in message


def test_two_columns_of_one_name_are_refused(spark):
    from trainyard.etl.datasource import columns
    from trainyard.etl.datasource.options import WriteOptions

    schema = StructType([StructField("a", IntegerType()), StructField("a", IntegerType())])
    assert "2 columns are named 'a'" in get_error(columns.build_fields, schema, WriteOptions(path="d"))


def test_columns_that_differ_in_case_only_are_refused(spark, tmp_path):
    rows = spark.range(4).selectExpr("id as x", "id + 1 as X")
    assert "the columns 'x' and 'X' differ in case only" in get_error(write, rows, tmp_path / "d")


def test_names_that_spark_distinguishes_may_have_one_spelling_in_upper_case(spark, tmp_path):
    rows = spark.range(4).selectExpr("id as `straße`", "id + 1 as strasse")
    assert write_without_options(rows, tmp_path / "d").column("straße").type == "int64"


def test_a_column_of_variable_length_may_have_a_comma_in_its_name(spark, tmp_path):
    rows = spark.range(4).selectExpr("sequence(0, id) as `a, b`", "id as c")
    dataset = write(rows, tmp_path / "d", splitColumn=None, shapes=None, variableLength='["a, b"]')
    assert dataset.column("a, b").kind == "list"


def test_a_truncated_shard_is_named_with_both_lengths(spark, tmp_path):
    dataset = write(make_frame(spark), tmp_path / "d")
    path = shard_paths(dataset)[0]
    file = Path(tmp_path / "d" / path)
    length = file.stat().st_size
    file.write_bytes(file.read_bytes()[:-100])
    message = get_error(read(spark, tmp_path / "d").collect)
    assert path in message and f"{length - 100:,} bytes" in message and f"{length:,}" in message


def test_an_altered_shard_is_refused_with_the_option_verify(spark, tmp_path):
    dataset = write(make_frame(spark), tmp_path / "d")
    path = shard_paths(dataset)[0]
    file = Path(tmp_path / "d" / path)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    message = get_error(read(spark, tmp_path / "d", verify="true").collect)
    assert f"shard {path}" in message and "was altered: its sha256 is" in message


def test_a_path_without_a_dataset_is_refused(spark, tmp_path):
    assert "is not a dataset" in get_error(read, spark, tmp_path)


def test_a_manifest_of_a_newer_version_is_refused(spark, tmp_path):
    write(make_frame(spark), tmp_path / "d")
    file = tmp_path / "d" / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 99}))
    assert "version 99" in get_error(read, spark, tmp_path / "d")


def test_an_unknown_split_is_refused_with_the_existing_ones(spark, tmp_path):
    write(make_frame(spark), tmp_path / "d")
    assert "no split 'nope'; it has test, train" in get_error(read(spark, tmp_path / "d", split="nope").collect)


def test_what_is_saved_without_the_planner_of_spark_is_the_same(spark, tmp_path):
    frame = make_frame(spark).withColumn("a.b `c` d", F.lit("x"))
    options = {"splitColumn": "split", "variableLength": "tokens"}
    expected = write(frame, tmp_path / "written", shapes=None)
    source.save(frame, str(tmp_path / "saved"), "append", options | {"rowsPerBatch": "32"})
    saved = manifest.read_current(str(tmp_path / "saved"))
    assert (saved.columns, saved.spark_schema) == (expected.columns, expected.spark_schema)
    for name, split in expected.splits.items():
        assert [shard.sha256 for shard in saved.splits[name].shards] == [shard.sha256 for shard in split.shards]


def test_a_session_without_the_format_saves_a_dataset(spark, tmp_path):
    """So neither the driver nor Spark looks up the format, for which Spark starts a Python process."""
    frame = spark.newSession().range(5)
    with pytest.raises(Exception, match="trainyard"):
        frame.write.format("trainyard").mode("append").save(str(tmp_path / "written"))
    source.save(frame, str(tmp_path / "saved"), "append", {})
    assert manifest.read_current(str(tmp_path / "saved")).rows == 5


def test_a_failed_save_names_the_row_and_leaves_no_file(spark, tmp_path):
    frame = spark.range(10).selectExpr("concat('k', id) as key", "array_repeat(1.5f, if(id = 7, 3, 2)) as x")
    with pytest.raises(TrainyardError, match="'k7'"):
        source.save(frame.coalesce(1), str(tmp_path / "saved"), "append", {})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        ("append", {}, "is a dataset"),
        ("overwrite", {"parts": "train"}, "'parts' is not an option"),
        ("overwrite", {"splits": "train,test"}, "split 'test' has no rows"),
    ],
)
def test_a_refused_save_leaves_the_version(spark, tmp_path, mode, options, message):
    source.save(spark.range(5), str(tmp_path), "append", {})
    with pytest.raises(TrainyardError, match=message):
        source.save(spark.range(9), str(tmp_path), mode, options)
    assert (manifest.read_current(str(tmp_path)).rows, versions.unreferenced(str(tmp_path))) == (5, [])
