"""Convert sentences to the numbers of their words, and chapters to labels."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def words(spark: SparkSession, source: DataFrame, chapters: Sequence[str], vocabulary: int) -> DataFrame:
    """Return the sentences of `chapters`: their words as hashes below `vocabulary`, and the index of the chapter."""
    tokens = F.regexp_extract_all(F.lower("text"), F.lit(r"(\w+)"))
    return source.where(F.col("chapter").isin(list(chapters))).select(
        "sentence",
        F.transform(tokens, lambda word: F.pmod(F.xxhash64(word), F.lit(vocabulary))).alias("words"),
        (F.array_position(F.array(*map(F.lit, chapters)), F.col("chapter")) - 1).alias("label"),
    )
