"""Convert a table of digits, with a column for each pixel, to rows with a tensor and a label."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def digits(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Return a row for each digit. Its day is the name of its folder."""
    pixels = [F.col(name).cast("float") for name in source.columns if name.startswith("pixel_")]
    label = F.col("target").cast("bigint")
    return source.select("day", "number", F.array(*pixels).alias("image"), label.alias("label"))
