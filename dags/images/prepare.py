"""Convert image files to rows with a key, the content of the file and a label. The files stay encoded."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def files(spark: SparkSession, source: DataFrame, photographs: Sequence[str]) -> DataFrame:
    """Return a row for each file in a folder of `photographs`. Its label is the index of the folder."""
    path = F.split("path", "/")
    folder, name = F.element_at(path, -2), F.element_at(path, -1)
    return source.where(folder.isin(list(photographs))).select(
        F.concat_ws("/", folder, name).alias("tile"),
        F.col("content").alias("image"),
        (F.array_position(F.array(*map(F.lit, photographs)), folder) - 1).alias("label"),
    )
