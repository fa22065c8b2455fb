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
from trainyard.etl.jobs import sources
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
from trainyard.etl.jobs import sources
from trainyard.schemas.specs.source import Source

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
print(sources.read(spark, Source(format="trainyard", path=sys.argv[1], options={"split": "train"})).count())
"""


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


def test_a_file_that_spark_takes_for_hidden_is_explained(spark, tmp_path):
    pq.write_table(pa.table({"x": range(9)}), tmp_path / "_part.parquet")
    with pytest.raises(TrainyardError, match=r"has no files that Spark reads.* begin with '_' or '\.' are hidden"):
        sources.read(spark, Source(format="parquet", path=str(tmp_path)))
