"""Convert patients to rows with a query, a tensor of measurements, and a relevance."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

MEASURED = ("sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")


def patients(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Return a row for each patient. Patients of one age are a query; the relevance is 0 to 3, by progression."""
    return source.select(
        "patient",
        F.col("age").cast("int"),
        F.array(*(F.col(name).cast("float") for name in MEASURED)).alias("measured"),
        F.floor(F.col("target") / 100).cast("float").alias("relevance"),
    )
