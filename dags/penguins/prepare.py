"""From a CSV of penguins to rows: numbers and one-hot categories in one tensor, the body mass as label."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

SPECIES = ("Adelie", "Chinstrap", "Gentoo")
ISLANDS = ("Biscoe", "Dream", "Torgersen")
SEXES = ("female", "male")
SIZES = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm")


def table(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Penguins without a body mass are left out; one whose sex is not known is neither."""
    sizes = [F.col(name).cast("float") for name in SIZES]
    categories = [*one_hot("species", SPECIES), *one_hot("island", ISLANDS), *one_hot("sex", SEXES)]
    known = source.where("body_mass_g IS NOT NULL")
    return known.select(
        F.concat_ws("-", "species", "island", "year", *SIZES, "body_mass_g").alias("penguin"),
        F.array(*sizes, *categories).alias("features"),
        (F.col("body_mass_g") / 1000).cast("float").alias("body_mass_kg"),
    )


def one_hot(name: str, values: tuple[str, ...]) -> list[Column]:
    """One column for each value: 1 where `name` has it, else 0, also where it is missing."""
    return [F.coalesce((F.col(name) == value).cast("float"), F.lit(0.0).cast("float")) for value in values]
