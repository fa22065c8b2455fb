from pyspark.sql import functions as F


def table(spark, source):
    return source.select(F.col("image").cast("array<float>"), F.col("label").cast("bigint"), "fold")
