"""Convert image files to rows with a key, an 8 x 8 tensor and a label."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, FloatType


def images(spark: SparkSession, source: DataFrame) -> DataFrame:
    """Return a row for each file of `source`, read by Spark's `image` format. The folder of a file is its label."""

    @F.pandas_udf(ArrayType(FloatType()))
    def pixels(data: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for images in data:
            yield images.map(lambda image: np.frombuffer(image, np.uint8).astype(np.float32) / 15)

    path = F.split("image.origin", "/")
    return source.select(
        F.regexp_replace(F.element_at(path, -1), r"\.png$", "").alias("id"),
        pixels("image.data").alias("image"),
        F.element_at(path, -2).cast("bigint").alias("label"),
    )
