"""Read a source with `spark.read`; errors name the format and the path."""

from __future__ import annotations

import re

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from trainyard.errors import TrainyardError
from trainyard.etl.scoring.scan import DatasetScan, select
from trainyard.schemas.specs.source import FORMAT, Source

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
    reader = spark.read.format(source.format).options(**source.options)
    try:
        return reader.load(source.path) if source.path is not None else reader.load()
    except Exception as error:
        raise TrainyardError(_explain(source, error)) from error


def describe(source: Source) -> str:
    """Return the source's format and path, without options, which may contain credentials."""
    return f"{source.format} at {source.path}" if source.path is not None else source.format


def _explain(source: Source, error: Exception) -> str:
    condition = error.getCondition() or "" if isinstance(error, AnalysisException) else ""
    text = str(error)
    if condition == "DATA_SOURCE_NOT_FOUND" or "ClassNotFoundException" in text:
        return (
            f"source format {source.format!r} is not available in Spark. Built-in formats are parquet, csv, json, orc, "
            "text, image, binaryFile, avro and jdbc; others need their package in spark.jars.packages."
        )
    if condition in _MISSING_PATH:
        return f"the source {describe(source)} does not exist. Check the path, and that the cluster has access to it."
    first_line = re.sub(r"\s+SQLSTATE: \w+", "", text.strip().split("\n", 1)[0])
    return f"the source {describe(source)} cannot be read: {first_line}"
