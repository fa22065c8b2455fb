"""Convert a series to rows with the value of a year, and the values of the years before it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

YEARS = 12
"""A cycle of the sun takes about eleven years."""


def windows(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Return a row for each year that has `YEARS` years before it.

    The window ends before the year itself, so no feature contains the value to forecast.
    """
    before = Window.orderBy("year").rowsBetween(-YEARS, -1)
    value = F.col("sunspots").cast("float")
    rows = source.select("year", value.alias("sunspots"), F.collect_list(value).over(before).alias("past"))
    date = F.make_date("year", F.lit(1), F.lit(1))
    return rows.where(F.size("past") == YEARS).withColumn("date", date)
