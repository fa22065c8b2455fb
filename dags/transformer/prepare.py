"""Convert sentences to windows of characters, and the characters that follow them."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def windows(spark: SparkSession, source: DataFrame, length: int) -> DataFrame:
    """Return rows of `length` characters in ASCII: `next[i]` follows `characters[i]`.

    Windows of a sentence have its key, so that `split_by="sentence"` keeps them in one split.
    """
    ascii_text = F.regexp_replace("text", r"[^\x00-\x7F]", "?")
    starts = F.sequence(F.lit(1), F.length("text") - length, F.lit(length))
    window = F.substring(ascii_text, F.col("start"), F.lit(length + 1))
    codes = F.transform(F.split(window, ""), lambda character: F.ascii(character).cast("bigint"))
    rows = source.where(F.length("text") > length).withColumn("start", F.explode(starts)).withColumn("codes", codes)
    return rows.select(
        "sentence",
        F.slice("codes", 1, length).alias("characters"),
        F.slice("codes", 2, length).alias("next"),
    )
