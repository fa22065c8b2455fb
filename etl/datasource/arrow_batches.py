"""How many rows Spark hands to Python at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod

from pyspark.sql import SparkSession

from trainyard.schemas.manifest import Column

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


_BYTES = 8 << 20
_FEWEST, _MOST = 256, 1 << 16
_VARYING = 1 << 14
"""What a row that may have any length is taken for: a small image."""
_WIDTHS = {"double": 8, "int64": 8, "uint64": 8, "float": 4, "int32": 4, "uint32": 4}


def fitting(columns: Iterable[Column]) -> int:
    """How many rows with these columns make an Arrow batch of some megabytes."""
    columns = tuple(columns)
    width = sum(_WIDTHS.get(column.type, 2) * prod(column.shape) for column in columns)
    width += sum(_VARYING for column in columns if column.kind == "list" or column.type == "binary")
    return min(max(_BYTES // max(width, 1), _FEWEST), _MOST)


@contextmanager
def batches_of(rows: int, spark: SparkSession) -> Iterator[None]:
    """What Spark runs in this context exchanges Arrow batches of at most `rows` rows with Python."""
    before = spark.conf.get(_ROWS)
    spark.conf.set(_ROWS, str(rows))
    try:
        yield
    finally:
        spark.conf.set(_ROWS, before)
