"""Join advertised computers with what is known of their month."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SIZES = ("speed_mhz", "disk_mb", "memory_mb")
FIRST = "1993-01-01"
"""The first month."""


def join(spark: SparkSession, computers: DataFrame, months: DataFrame) -> DataFrame:
    """Return a row for each computer: its sizes, the time and the market as numbers, strings for categories, the price.

    Sizes are powers of two, so the numbers are their logarithms.
    """
    rows = computers.join(months, "month").withColumn("month", F.to_date("month", "yyyy-MM"))
    sizes = [F.log2(F.col(name)) for name in SIZES]
    time = F.months_between("month", F.lit(FIRST).cast("date"))
    numbers = F.array(*sizes, time, F.log2("advertisements")).cast("array<float>")
    return rows.select(
        "id", "month", "brand", "cd", "speakers", "screen", numbers.alias("numbers"), F.col("price").cast("float")
    )
