"""Sources: what `spark.read` reads, with errors that name the format and the path."""

from __future__ import annotations

import re

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.source import Source

_NO_PATH = ("PATH_NOT_FOUND", "PATH_DOES_NOT_EXIST")


def read(spark: SparkSession, source: Source) -> DataFrame:
    """The source as a DataFrame; nothing is read yet but what it takes to know the schema.

    Raises TrainyardError for an unknown format, a path that is not there, and files that cannot be
    understood.
    """
    reader = spark.read.format(source.format).options(**source.options)
    try:
        return reader.load(source.path) if source.path is not None else reader.load()
    except Exception as error:
        raise TrainyardError(_explain(source, error)) from error


def describe(source: Source) -> str:
    """The source in a few words, without options: those may hold credentials."""
    return f"{source.format} at {source.path}" if source.path is not None else source.format


def _explain(source: Source, error: Exception) -> str:
    condition = error.getCondition() or "" if isinstance(error, AnalysisException) else ""
    text = str(error)
    if condition == "DATA_SOURCE_NOT_FOUND" or "ClassNotFoundException" in text:
        return (
            f"source format {source.format!r} is not known to Spark. Built in are parquet, csv, json, orc, text, "
            "image, binaryFile, avro and jdbc; others need their package in spark.jars.packages."
        )
    if condition in _NO_PATH:
        return f"the source {describe(source)} does not exist. Check the path, and that the cluster can see it."
    first = re.sub(r"\s+SQLSTATE: \w+", "", text.strip().split("\n", 1)[0])
    return f"the source {describe(source)} cannot be read: {first}"
