"""Convert a CSV of penguins to rows with a tensor of numbers and one-hot categories, and the body mass as label."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

SPECIES = ("Adelie", "Chinstrap", "Gentoo")
ISLANDS = ("Biscoe", "Dream", "Torgersen")
SEXES = ("female", "male")
SIZES = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm")


def table(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Return the rows to train on: those of `inputs` with a body mass."""
    return inputs(spark, source).where("body_mass_kg IS NOT NULL")


def of_island(spark: SparkSession, source: DataFrame, island: str) -> DataFrame:
    """Return the rows of `table` of one island."""
    return table(spark, source.where(F.col("island") == island))


def inputs(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Return the rows to predict for: all penguins with complete sizes, also those without a body mass.

    If the sex is missing, both of its categories are 0.
    """
    sizes = [F.col(name).cast("float") for name in SIZES]
    categories = [*one_hot("species", SPECIES), *one_hot("island", ISLANDS), *one_hot("sex", SEXES)]
    return source.dropna(subset=list(SIZES)).select(
        F.concat_ws("-", "species", "island", "year", *SIZES, "body_mass_g").alias("penguin"),
        F.array(*sizes, *categories).alias("features"),
        (F.col("body_mass_g") / 1000).cast("float").alias("body_mass_kg"),
    )


def measured(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Return the measurements of each penguin, and what is learned from them; the sex of some is not known."""
    return source.dropna(subset=list(SIZES)).select(
        F.array(*(F.col(name).cast("float") for name in SIZES)).alias("sizes"),
        "species",
        "sex",
        (F.col("body_mass_g") / 1000).cast("float").alias("body_mass_kg"),
    )


def one_hot(name: str, values: tuple[str, ...]) -> list[Column]:
    """Return a column for each value: 1 where the column `name` has it, and 0 where not or where it is null."""
    return [F.coalesce((F.col(name) == value).cast("float"), F.lit(0.0).cast("float")) for value in values]
