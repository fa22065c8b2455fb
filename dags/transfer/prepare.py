"""Select some of the digits, and number them from 0 on."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def images(spark: SparkSession, source: DataFrame, only: Sequence[int]) -> DataFrame:
    """Return images of the digits in `only`, with pixels from 0 to 1. The label is the index of the digit in `only`."""
    return source.where(F.col("digit").isin(list(only))).select(
        "id",
        F.transform("pixels", lambda pixel: (pixel / 255).cast("float")).alias("image"),
        (F.array_position(F.array(*map(F.lit, only)), F.col("digit").cast("int")) - 1).alias("label"),
    )
