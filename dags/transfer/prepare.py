"""Some of the digits, numbered from 0 on."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def images(spark: SparkSession, source: DataFrame, only: Sequence[int]) -> DataFrame:
    """Images of the digits in `only`, pixels from 0 to 1; the label is the digit's place in `only`."""
    return source.where(F.col("digit").isin(list(only))).select(
        "id",
        F.transform("pixels", lambda pixel: (pixel / 255).cast("float")).alias("image"),
        (F.array_position(F.array(*map(F.lit, only)), F.col("digit").cast("int")) - 1).alias("label"),
    )
