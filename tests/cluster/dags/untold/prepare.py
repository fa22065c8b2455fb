"""Return 300 rows."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def rows(spark: SparkSession, source: DataFrame) -> DataFrame:
    return spark.range(300).select("id", F.col("id").cast("double").alias("x"))
