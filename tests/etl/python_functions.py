"""Functions for `prepare` and `postprocess` that add 1 to `x`, as `y`, with each kind of Python function of Spark."""

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

SCHEMA = "id bigint, y double"


def udf(spark, source):
    return source.select("id", F.udf(lambda x: float(x) + 1.0, "double")("x").alias("y"))


def udf_in_a_filter(spark, source):
    return source.where(F.udf(lambda x: x >= 0, "boolean")("x")).select("id", (F.col("x") + 1).alias("y"))


def pandas_udf(spark, source):
    def add(x: pd.Series) -> pd.Series:
        return x + 1.0

    return source.select("id", F.pandas_udf(add, "double")("x").alias("y"))


def arrow_udf(spark, source):
    def add(x: pa.Array) -> pa.Array:
        return pc.add(x, 1.0)

    return source.select("id", F.arrow_udf(add, "double")("x").alias("y"))


def nested_udfs(spark, source):
    def double(x: pd.Series) -> pd.Series:
        return x * 2.0

    halve, increment = F.udf(lambda x: x / 2, "double"), F.udf(lambda x: x + 1.0, "double")
    return source.select("id", increment(halve(F.pandas_udf(double, "double")("x"))).alias("y"))


def grouped_pandas_udf(spark, source):
    def add(x: pd.Series) -> float:
        return float(x.sum()) + 1.0

    return source.groupBy("id").agg(F.pandas_udf(add, "double")("x").alias("y"))


def udtf(spark, source):
    class Add:
        def eval(self, x: float):
            yield (x + 1.0,)

    return source.lateralJoin(F.udtf(Add, returnType="y double")(F.col("x").outer())).select("id", "y")


def apply_in_pandas(spark, source):
    return source.groupBy(F.col("id") % 3).applyInPandas(lambda rows: _add(rows), SCHEMA)


def map_in_pandas(spark, source):
    return source.mapInPandas(lambda batches: (_add(rows) for rows in batches), SCHEMA)


def map_in_arrow(spark, source):
    def add(batches):
        for batch in batches:
            columns = {"id": pc.cast(batch["id"], pa.int64()), "y": pc.add(batch["x"], 1.0)}
            yield pa.RecordBatch.from_pydict(columns)

    return source.mapInArrow(add, SCHEMA)


def _add(rows):
    return pd.DataFrame({"id": rows["id"].astype("int64"), "y": rows["x"] + 1.0})


KINDS = (
    udf, udf_in_a_filter, pandas_udf, arrow_udf, nested_udfs, grouped_pandas_udf, udtf, apply_in_pandas, map_in_pandas,
    map_in_arrow,
)  # fmt: skip


def upper_keys(spark, rows):
    return rows.withColumn("key", F.udf(lambda key: key.upper(), "string")("key"))
