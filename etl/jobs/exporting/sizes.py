"""How many rows are in the Arrow batches of a Spark job, and how many shards an export writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import prod

from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, StructField

from trainyard.schemas.datasets.manifest import Column, DatasetManifest

_SPARK_OPTION = "spark.sql.execution.arrow.maxRecordsPerBatch"
_TARGET_BYTES = 8 << 20
_MAX_ROWS = 1 << 16
_VARIABLE_LENGTH_BYTES = 1 << 14
"""The assumed size of a value of variable length, where it is not known: that of a small image."""
_SHARD_BYTES = 256 << 20
_UNKNOWN_BYTES = 1 << 50
"""Spark estimates a source whose size it does not know to be larger than this: 2**63 bytes, less for some columns."""
_UNLIMITED = (1 << 31) - 1
"""Spark's default for the executors that it may request."""
_BYTES_PER_ELEMENT = {"double": 8, "int64": 8, "uint64": 8, "float": 4, "int32": 4, "uint32": 4}


def choose_batch_rows(columns: Iterable[Column], dataset: DatasetManifest | None = None) -> int:
    """Return the number of rows with `columns` that make an Arrow batch of about 8 MiB.

    Args:
        columns: The columns that are read.
        dataset: The dataset that they are read from, whose shards show how large its rows are.
    """
    columns = tuple(columns)
    row_bytes = _count_fixed_bytes(columns)
    large = sum(map(_is_large, columns))
    if dataset is None:
        row_bytes += large * _VARIABLE_LENGTH_BYTES
    elif large or (any(column.type == "string" for column in columns) and not _has_others(columns, dataset)):
        row_bytes += _measure_variable_bytes(dataset)
    return fit_rows(row_bytes)


def _is_large(column: Column) -> bool:
    return column.kind == "list" or column.type == "binary"


def _has_others(columns: Iterable[Column], dataset: DatasetManifest) -> bool:
    """Return whether a dataset has large columns that are not read, of which its shards have the size too."""
    names = {column.name for column in columns}
    return any(_is_large(column) and column.name not in names for column in dataset.columns)


def fit_rows(row_bytes: int) -> int:
    """Return the number of rows of so many bytes that make an Arrow batch of about 8 MiB."""
    return min(_TARGET_BYTES // max(row_bytes, 1) or 1, _MAX_ROWS)


def describe_fields(fields: Iterable[StructField]) -> tuple[Column, ...]:
    """Return columns of a DataFrame as `choose_batch_rows` takes them: arrays have variable length."""
    return tuple(
        Column(
            name=field.name, kind="list" if isinstance(field.dataType, ArrayType) else "scalar",
            type=field.dataType.typeName(),
        )
        for field in fields
    )  # fmt: skip


def _count_fixed_bytes(columns: Iterable[Column]) -> int:
    return sum(
        _BYTES_PER_ELEMENT.get(column.type, 2) * prod(column.shape) for column in columns if column.kind != "list"
    )


def _measure_variable_bytes(dataset: DatasetManifest) -> int:
    """Return the mean size of what differs in length in a row of a dataset."""
    total = sum(shard.bytes for split in dataset.splits.values() for shard in split.shards)
    return max(0, total // max(1, dataset.rows) - _count_fixed_bytes(dataset.columns))


@contextmanager
def limit_batch_rows(rows: int, spark: SparkSession) -> Iterator[None]:
    """Limit Arrow batches to `rows` rows for the Spark jobs that run in this context."""
    previous = spark.conf.get(_SPARK_OPTION)
    spark.conf.set(_SPARK_OPTION, str(rows))
    try:
        yield
    finally:
        spark.conf.set(_SPARK_OPTION, previous)


def choose_shard_count(cores: int, conf: Mapping[str, str], source_bytes: int) -> int:
    """Return the number of shards of an export with dynamic allocation: Spark requests executors for so many tasks.

    It is the number of cores at the start for a small source, and grows with the source up to the number of cores of
    all executors that may be requested.

    Args:
        cores: The cores that the application starts with.
        conf: The Spark configuration.
        source_bytes: Spark's estimate of the size of the source.
    """
    executors = int(conf.get("spark.dynamicAllocation.maxExecutors", _UNLIMITED))
    if executors >= _UNLIMITED and source_bytes >= _UNKNOWN_BYTES:
        return cores
    limit = executors * int(conf.get("spark.executor.cores", 1))
    return max(cores, min(-(-source_bytes // _SHARD_BYTES), limit))
