"""Convert image files to rows with a key, the encoded image, and the name of the folder as label."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trainyard.etl import shrink_images


def files(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Return a row for each file of `FOLDER/NAME`. Images of more than 64 pixels a side are made smaller."""
    path = F.split("path", "/")
    folder, name = F.element_at(path, -2), F.element_at(path, -1)
    return source.select(
        F.concat_ws("/", folder, name).alias("tile"),
        shrink_images("content", max_side=64).alias("image"),
        folder.alias("photograph"),
    )
