from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def flowers(spark: SparkSession, source: DataFrame) -> DataFrame:
    size = F.array(F.col("length").cast("float"), F.col("width").cast("float"))
    return source.select("id", size.alias("size"), "field", "kind")
