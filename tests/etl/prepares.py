"""Functions for `prepare` and `postprocess` that tests of jobs name."""

import time

from pyspark.sql import functions as F

from trainyard.schemas.datasets import versions as dataset_versions


def images(spark, source, scale=1.0):
    value = (F.col("id") * scale).cast("float")
    return source.select(
        F.concat(F.lit("k"), "id").alias("key"),
        F.array_repeat(value, 4).alias("image"),
        (F.col("id") % 3).alias("label"),
    )


def nothing(spark, source):
    return None


def empty(spark, source):
    return images(spark, source).where("false")


def only(spark, predictions, class_):
    return predictions.where(F.col("class_") == class_).select("key")


def reserved(spark, source):
    return images(spark, source).withColumn("__ORDER", F.lit(1))


def cases(spark, source):
    return source.selectExpr("id as price", "id + 1 as Price")


def rows(spark, source):
    return source


def repeated(spark, source, splits=1):
    """Return 16 distinct rows many times, in one split or in each of several."""
    split = f"concat('part-', id div 16 % {splits}) as split"
    return source.selectExpr("id % 16 as kind", "id % 16 < 7 as label", split)


def noise(spark, source):
    """Return other rows each time that they are computed, of two strata."""
    return source.selectExpr("id % 2 as stratum", "reflect('java.util.UUID', 'randomUUID') as noise")


def days(spark, source):
    """A row a day from 2026-01-01, and the part that its number is in."""
    day = F.expr("date_add(date'2026-01-01', cast(id as int))").alias("day")
    return source.select("id", day, F.when(F.col("id") < 900, "known").otherwise("new").alias("part"))


def leased(spark, predictions, dataset):
    """Add the versions of a dataset that cannot expire now."""
    versions = sorted(dataset_versions.leased_versions(dataset, time.time()))
    return predictions.withColumn("versions", F.lit(",".join(map(str, versions))))


def dataset(spark, source):
    return spark.read.format("trainyard").load("/nowhere")


def totals(spark, orders, customers, cities, at_least: float):
    """Return the sum of each customer's orders beside the customer's city."""
    sums = orders.where(F.col("amount") >= at_least).groupBy("customer").agg(F.sum("amount").alias("amount"))
    return sums.join(customers, "customer").join(cities, "city").select("customer", "amount", "inhabitants")


def named(spark, people=None, *, orders):
    assert people is None
    return orders


def with_numbers(spark, source, size=True):
    """Return rows with a number as their city, as if categories were indices."""
    sizes = ["1.5D as size"] if size else []
    return source.selectExpr("key", "1L as city", "store", "open", "kind", "split", *sizes)


def scaled(spark, source, state=None):
    """Return numbers less the mean that `fit_mean` returned."""
    mean = 0.0 if state is None else state["mean"]
    x = (F.col("store") - F.lit(mean)).cast("float").alias("x")
    return source.select("key", "store", x, F.col("split")) if "split" in source.columns else source.select("key", x)


def fit_mean(spark, rows, column="store"):
    return {"mean": rows.agg(F.avg(column)).first()[0]}


def fit_set(spark, rows):
    return {1, 2}


def named_oddly(spark, source):
    return source.select("key", F.col("city").alias("stadt.`name"), "kind")


def identity(spark, source, state=None):
    return source


def delete_rows(spark, rows, table):
    """A `fit` that deletes what it has read."""
    spark.sql(f"DELETE FROM {table}")
    return {"rows": rows.count()}


def numbers(spark, source):
    """The columns of a table, without those of its changes."""
    return source.select("id", "x")
