"""Sources are read with Spark's formats; errors name the format and the path."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT
from trainyard.backends.driver import describe_failure
from trainyard.errors import TrainyardError
from trainyard.etl.jobs.exporting import sources
from trainyard.schemas.specs.source import Source

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", ["parquet", "csv", "json", "orc"])
def test_a_file_format_is_read_with_its_options(spark, tmp_path, kind):
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "id long, name string")
    options = {"header": "true", "inferSchema": "true"} if kind == "csv" else {}
    rows.write.format(kind).options(**options).save(str(tmp_path / "s"))
    frame = sources.read(spark, Source(format=kind, path=str(tmp_path / "s"), options=options))
    assert sorted((int(row.id), row.name) for row in frame.collect()) == [(1, "a"), (2, "b")]


def test_a_folder_of_images_is_read(spark, tmp_path):
    pixels = np.arange(12, dtype=np.uint8).tobytes()
    (tmp_path / "one.ppm").write_bytes(b"P6 2 2 255\n" + pixels)
    files = sources.read(spark, Source(format="binaryFile", path=str(tmp_path))).collect()
    assert [bytes(row.content)[-12:] for row in files] == [pixels]
    assert "image" in sources.read(spark, Source(format="image", path=str(tmp_path))).columns


PROGRAM = """
import sys

from pyspark.sql import SparkSession
from trainyard.etl.jobs.exporting import sources
from trainyard.schemas.specs.source import Source

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
print(sources.read(spark, Source(format="trainyard", path=sys.argv[1], options={"split": "train"})).count())
"""


@pytest.mark.full
def test_a_dataset_is_read_in_a_session_that_did_not_know_its_format(spark, tmp_path):
    spark.range(7).write.format("trainyard").mode("append").save(str(tmp_path / "dataset"))
    env = os.environ | {"PYTHONPATH": str(ROOT / "plugins"), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "dataset")]
    assert subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split() == ["7"]


def test_a_missing_path_is_named_with_its_format(spark, tmp_path):
    with pytest.raises(TrainyardError, match=rf"the source parquet at {tmp_path}/nope does not exist"):
        sources.read(spark, Source(format="parquet", path=f"{tmp_path}/nope"))


def test_an_unknown_format_is_refused_with_the_available_ones(spark):
    with pytest.raises(
        TrainyardError, match=r"source format 'parket' is not available in Spark. Built-in formats are parquet, csv"
    ):
        sources.read(spark, Source(format="parket", path="x"))


def test_a_source_that_cannot_be_parsed_is_named(spark, tmp_path):
    (tmp_path / "s.parquet").write_text("no parquet")
    with pytest.raises(TrainyardError, match=rf"the source parquet at {tmp_path} cannot be read: "):
        sources.read(spark, Source(format="parquet", path=str(tmp_path)))


def test_a_damaged_file_is_named_with_its_cause_and_not_with_the_call(spark, tmp_path):
    file = tmp_path / "s" / "a.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"x": range(9)}), file)
    frame = sources.read(spark, Source(format="parquet", path=str(file.parent)))
    file.write_bytes(b"a,b\n1,2\n" * 9)
    with pytest.raises(Exception, match="An error occurred while calling") as raised:
        frame.toArrow()
    error, _ = describe_failure(raised.value)
    assert error.startswith(f"RuntimeException: file:{file} is not a Parquet file. Expected magic number at tail")
    assert error.endswith("(FAILED_READ_FILE.NO_HINT)")
    with pytest.raises(
        TrainyardError, match=rf"the source parquet at {file.parent} cannot be read: RuntimeException: f"
    ):
        sources.read(spark, Source(format="parquet", path=str(file.parent)))


def test_types_that_spark_does_not_read_are_named_with_what_pandas_calls_the_remedy(spark, tmp_path):
    columns = {
        "at": pa.array([1], pa.timestamp("ns")),
        "half": np.zeros(1, np.float16),
        "us": pa.array([1], "time64[us]"),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    message = (
        r"Column 'at' has type timestamp\[ns\]: write microseconds, .*coerce_timestamps='us'.*Column 'half' has type h"
    )
    with pytest.raises(TrainyardError, match=message):
        sources.read(spark, Source(format="parquet", path=str(tmp_path)))


def test_files_that_spark_takes_for_hidden_are_counted_and_one_is_named(spark, tmp_path):
    table = pa.table({"x": range(9)})
    pq.write_table(table, tmp_path / "_part.parquet")
    source = Source(format="parquet", path=str(tmp_path))
    message = r"has no files that Spark reads. Spark does not read 1 files or folders, for example '_part.parquet'"
    with pytest.raises(TrainyardError, match=message):
        sources.read(spark, source)
    (tmp_path / "_day=ü").mkdir()
    for name in ("_SUCCESS", "_day=ü/a b[1].parquet", "_day=ü/.a.parquet.crc", "_day=ü/._a.parquet"):
        pq.write_table(table, tmp_path / name)
    (tmp_path / "_part.parquet").rename(tmp_path / "_metadata_of_tests")
    assert sources.find_warnings(spark, source, sources.read(spark, source)) == []
    for name in ("_day=ü/.b.parquet", "_day=ü/_ä.parquet"):
        pq.write_table(table, tmp_path / name)
    (warning,) = sources.find_warnings(spark, source, sources.read(spark, source))
    assert warning.startswith(
        f"the source parquet at {tmp_path}: Spark does not read 2 files or folders, for example '.b"
    )
    selected = source.model_copy(update={"path": f"{tmp_path}/*", "options": {"pathGlobFilter": "*.parquet"}})
    assert "for example '_ä.parquet'" not in sources.find_warnings(spark, selected, sources.read(spark, selected))[0]


def test_what_is_beside_the_file_of_a_source_is_not_missed(spark, tmp_path):
    for name in ("a.parquet", "_b.parquet", ".c.parquet"):
        pq.write_table(pa.table({"x": range(9)}), tmp_path / name)
    source = Source(format="parquet", path=str(tmp_path / "a.parquet"))
    assert sources.find_warnings(spark, source, sources.read(spark, source)) == []


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_columns_that_the_first_file_does_not_have_are_named(spark, tmp_path, kind):
    frames = [spark.range(2, numPartitions=1)] * 2 + [spark.range(2).selectExpr("id", "id as `größe`", "'b' as ID2")]
    for number, frame in enumerate(frames):
        frame.coalesce(1).write.format(kind).save(f"{tmp_path}/day={number}")
    source = Source(format=kind, path=str(tmp_path))
    (warning,) = sources.find_warnings(spark, source, sources.read(spark, source))
    assert "does not read 'größe', 'ID2' of others (3 of 3 files were compared). To read them, write" in warning
    merged = source.model_copy(update={"options": {"mergeSchema": "true"}})
    assert sources.find_warnings(spark, merged, sources.read(spark, merged)) == []


def test_a_csv_file_whose_header_has_another_order_is_refused_by_name(spark, tmp_path):
    (tmp_path / "1.csv").write_text("größe,y\n1,2\n")
    (tmp_path / "2.csv").write_text("y,größe\n20,10\n")
    source = Source(format="csv", path=str(tmp_path), options={"header": "true", "inferSchema": "true"})
    with pytest.raises(Exception, match="An error occurred while calling") as raised:
        sources.read(spark, source).toArrow()
    assert "CSV header does not conform to the schema" in describe_failure(raised.value)[0]
    (tmp_path / "2.csv").write_text("größe,y\n20,10\n")
    assert sorted(map(tuple, sources.read(spark, source).collect())) == [(1, 2), (20, 10)]
    for number in (1, 2):
        (tmp_path / f"{number}.csv").write_text(",y\n0,1\n")  # as pandas writes an index, which Spark names _c0
    assert sources.read(spark, source).columns == ["_c0", "y"]
    assert sources.read(spark, source).count() == 2
