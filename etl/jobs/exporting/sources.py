"""Read a source with `spark.read`; errors name the format and the path."""

from __future__ import annotations

import itertools
import re
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from trainyard.errors import TrainyardError, find_java_cause
from trainyard.etl.jobs.exporting import appended, snapshots, source_files
from trainyard.etl.scoring.scan import DatasetScan, select
from trainyard.files import filesystems
from trainyard.schemas.specs.source import FORMAT, ReadsSources, Source

_MISSING_PATH = ("PATH_NOT_FOUND", "PATH_DOES_NOT_EXIST")


def read(spark: SparkSession, source: Source) -> DataFrame:
    """Return the source as a DataFrame. Only what is needed for its schema is read.

    Raises:
        TrainyardError: The format is unknown, the path does not exist, the files cannot be parsed, or an option of a
            dataset is not valid.
    """
    if source.format == FORMAT and source.path is not None:
        rows = DatasetScan(spark, source.path, source.options)
        return select(rows, rows.schema.names)
    reader = spark.read.options(**source.reader_options)
    try:
        if source.since:
            return appended.read(spark, source, snapshots.find_format(spark, source))
        if source.query is not None:
            return spark.sql(source.query)
        if source.table is not None:
            return reader.table(source.table)
        reader = reader.format(source.format)
        frame = reader.load(source.path) if source.path is not None else reader.load()
        return _check_headers(spark, source, frame)
    except TrainyardError:
        raise
    except Exception as error:
        raise TrainyardError(_explain(spark, source, error)) from error


def read_all(spark: SparkSession, spec: ReadsSources) -> tuple[DataFrame | dict[str, DataFrame], list[str]]:
    """Return the source of a job, or several by their names, and what Spark leaves out of files, a sentence each.

    Raises:
        TrainyardError: As `read`.
    """
    frames = {name: read(spark, source) for name, source in spec.all_sources.items()}
    found = [find_warnings(spark, source, frames[name]) for name, source in spec.all_sources.items()]
    return frames if spec.sources else frames["source"], [*itertools.chain.from_iterable(found)]


def find_warnings(spark: SparkSession, source: Source, frame: DataFrame) -> list[str]:
    """Return what Spark leaves out of the files of a source that was read, a sentence each."""
    return [f"the source {source.describe()}: {text}" for text in source_files.find_left_out(spark, source, frame)]


def describe_all(spec: ReadsSources) -> str:
    """Return the formats and paths, or tables, of the sources of a job."""
    return ", ".join(source.describe() for source in spec.all_sources.values())


def _check_headers(spark: SparkSession, source: Source, frame: DataFrame) -> DataFrame:
    """Return a frame that refuses files of CSV whose header is another one: Spark takes their columns by position.

    Spark compares headers with the names of columns, which are others where a header has an empty name or one twice.
    """
    options = {name.lower(): value for name, value in source.options.items()}
    has_header = source.format.lower() == "csv" and options.get("header", "").lower() == "true"
    if not has_header or "enforceschema" in options or len(frame._jdf.inputFiles()) < 2:
        return frame
    texts = {name: value for name, value in source.options.items() if name.lower() not in ("header", "inferschema")}
    header = spark.read.format(source.format).options(**texts).load(source.path).head() or ()
    if not all(header) or len({name.lower() for name in header}) < len(header):
        return frame
    reader = spark.read.format(source.format).options(**source.options, enforceSchema="false").schema(frame.schema)
    return reader.load(source.path)


def _explain(spark: SparkSession, source: Source, error: Exception) -> str:
    condition = error.getCondition() or "" if isinstance(error, AnalysisException) else ""
    text = str(error)
    if condition == "DATA_SOURCE_NOT_FOUND" or "ClassNotFoundException" in text:
        return (
            f"source format {source.format!r} is not available in Spark. Built-in formats are parquet, csv, json, orc, "
            "text, image, binaryFile, avro and jdbc; others need their package in spark.jars.packages."
        )
    if condition in _MISSING_PATH:
        return f"the source {source.describe()} does not exist. Check the path, and that the cluster has access to it."
    if condition == "UNABLE_TO_INFER_SCHEMA":
        hidden = ""
        with suppress(Exception):  # it is found by the way
            hidden = source_files.describe_hidden(spark, source)
        return (
            f"the source {source.describe()} has no files that Spark reads. {hidden or 'Check that it is not empty.'}"
        )
    cause = find_java_cause(text) or re.sub(r"\s+SQLSTATE: \w+", "", text.strip().split("\n", 1)[0])
    return f"the source {source.describe()} cannot be read: {cause}{_explain_types(source, condition)}"


def _explain_types(source: Source, condition: str) -> str:
    """Return which columns of Parquet have types that Spark does not have, and how to write them."""
    if condition != "PARQUET_TYPE_ILLEGAL" or source.path is None:
        return ""
    with suppress(Exception):  # there may be no client or no credentials here
        fs, path = filesystems.locate(source.path)
        name = next(name for name in fs.find(path) if name.endswith(".parquet"))
        with fs.open(name) as file:
            schema = pq.read_schema(file)
        columns = [(field.name, str(field.type), _advise(field.type)) for field in schema]
        return "".join(f". Column {name!r} has type {kind}: {advice}" for name, kind, advice in columns if advice)
    return ""


def _advise(kind: pa.DataType) -> str | None:
    """Return how to write a column of Parquet that Spark does not read because of its type."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return (
            "write microseconds, with pandas by to_parquet(coerce_timestamps='us', allow_truncated_timestamps=True), "
            "or set conf={'spark.sql.legacy.parquet.nanosAsLong': 'true'}"
        )
    return "write float32, with pandas by astype('float32')" if pa.types.is_float16(kind) else None
