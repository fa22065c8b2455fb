"""Return rows with four features and a label."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def rows(spark: SparkSession, source: DataFrame) -> DataFrame:
    number = F.col("id").cast("float")
    return spark.range(300).select(
        "id", F.array(*[number % n for n in (2, 3, 5, 7)]).alias("x"), F.expr("id % 2 label")
    )
