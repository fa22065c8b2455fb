"""The number of rows in the Arrow batches that Spark exchanges with Python workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import prod

from pyspark.sql import SparkSession

from trainyard.schemas.manifest import Column

_SPARK_OPTION = "spark.sql.execution.arrow.maxRecordsPerBatch"
_TARGET_BYTES = 8 << 20
_MIN_ROWS, _MAX_ROWS = 256, 1 << 16
_VARIABLE_LENGTH_BYTES = 1 << 14
"""The assumed size of a value of variable length: that of a small image."""
_BYTES_PER_ELEMENT = {"double": 8, "int64": 8, "uint64": 8, "float": 4, "int32": 4, "uint32": 4}


def choose_batch_rows(columns: Iterable[Column]) -> int:
    """Return the number of rows with `columns` that make an Arrow batch of about 8 MiB."""
    columns = tuple(columns)
    row_bytes = sum(_BYTES_PER_ELEMENT.get(column.type, 2) * prod(column.shape) for column in columns)
    row_bytes += sum(_VARIABLE_LENGTH_BYTES for column in columns if column.kind == "list" or column.type == "binary")
    return min(max(_TARGET_BYTES // max(row_bytes, 1), _MIN_ROWS), _MAX_ROWS)


@contextmanager
def limit_batch_rows(rows: int, spark: SparkSession) -> Iterator[None]:
    """Limit Arrow batches to `rows` rows for the Spark jobs that run in this context."""
    previous = spark.conf.get(_SPARK_OPTION)
    spark.conf.set(_SPARK_OPTION, str(rows))
    try:
        yield
    finally:
        spark.conf.set(_SPARK_OPTION, previous)
