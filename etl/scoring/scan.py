"""Apply a function to the rows of a dataset in the processes that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trainyard.etl.datasource.columns import get_column, read_schema
from trainyard.etl.datasource.map_in_arrow import map_in_arrow
from trainyard.etl.datasource.options import ReadOptions
from trainyard.etl.datasource.reader import DatasetReader, ShardPartition
from trainyard.etl.datasource.record_batches import concat_batches
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import DatasetManifest

BatchFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function of the record batches of a task, as `DataFrame.mapInArrow` takes it."""


class DatasetScan:
    """The rows of a dataset, for functions that are applied where they are read.

    A task of `spark.read.format("trainyard")` with `mapInArrow` reads in one Python process and applies the function in
    another, and all rows pass through the JVM between them. A task of a scan does both in one process.

    Args:
        spark: The session.
        dataset: The URI of the dataset.
        options: The read options of the data source.

    Attributes:
        spark: The session.
        dataset: The URI of the dataset.
        manifest: The version that is read.
        schema: The schema of the rows.
        batch_rows: The smallest number of rows that a function is given at once, but for the last ones of a shard; 1
            until it is set.

    Raises:
        TrainyardError: An option is not valid, or the dataset or version does not exist.
    """

    manifest: DatasetManifest
    schema: StructType
    batch_rows: int

    def __init__(self, spark: SparkSession, dataset: str, options: Mapping[str, str] | None = None) -> None:
        self.spark, self.dataset, self.batch_rows = spark, dataset, 1
        self._options = ReadOptions.parse({**(options or {}), "path": dataset})
        self.manifest = manifests.read_version(dataset, self._options.version, self._options.since)
        self.schema = read_schema(self.manifest.spark_schema)

    def map_batches(self, columns: Sequence[str], function: BatchFunction, schema: StructType) -> DataFrame:
        """Return the rows that a function makes of the record batches of each shard.

        Args:
            columns: The columns to read.
            function: The function.
            schema: The schema of what it returns.

        Raises:
            TrainyardError: The split does not exist.
        """
        reader = DatasetReader(StructType([self.schema[name] for name in columns]), self._options, self.manifest)
        partitions, batch_rows = reader.partitions(), self.batch_rows
        # A worker reads the broadcast once, and not once a task.
        shared = self.spark.sparkContext.broadcast((reader, partitions))

        def apply(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return function(_read(shared.value, numbers, batch_rows))

        return self.spark.range(0, len(partitions), 1, max(len(partitions), 1)).mapInArrow(apply, schema)


Rows: TypeAlias = DataFrame | DatasetScan


def get_session(rows: Rows) -> SparkSession:
    """Return the session that rows are read in."""
    return rows.spark if isinstance(rows, DatasetScan) else rows.sparkSession


def select(rows: Rows, columns: Sequence[str]) -> DataFrame:
    """Return some columns of rows as a DataFrame.

    Those of a scan are read as the scan does: for `spark.read.format("trainyard")`, Spark starts two Python processes,
    one after the other, that find the data source and its partitions.
    """
    if isinstance(rows, DatasetScan):
        return rows.map_batches(columns, _pass, StructType([rows.schema[name] for name in columns]))
    return rows.select(*map(get_column, columns))


def map_batches(rows: Rows, columns: Sequence[str], function: BatchFunction, schema: StructType) -> DataFrame:
    """Return what a function makes of the record batches of some columns, with timestamps in UTC.

    Args:
        rows: The rows.
        columns: The columns.
        function: The function, of the record batches of one task.
        schema: The schema of what it returns.
    """
    if isinstance(rows, DatasetScan):
        return rows.map_batches(columns, function, schema)
    return map_in_arrow(select(rows, columns), lambda batches: function(map(_convert, batches)), schema)


def merge_batches(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield record batches of at least `rows` rows, but for the last one.

    Args:
        batches: Record batches of one schema.
        rows: The smallest number of rows.
    """
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in filter(len, batches):
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield _concatenate(waiting)
            waiting, count = [], 0
    if waiting:
        yield _concatenate(waiting)


def _read(
    shared: tuple[DatasetReader, Sequence[ShardPartition]], numbers: Iterable[pa.RecordBatch], batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the partitions whose numbers are the only column of `numbers`."""
    reader, partitions = shared
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from merge_batches(reader.read(partitions[number]), batch_rows)


def _pass(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _convert(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with timestamps in UTC, as those of a dataset are."""
    values = [
        column.cast(pa.timestamp(column.type.unit, tz="UTC"))
        if pa.types.is_timestamp(column.type) and column.type.tz
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(values, names=batch.schema.names)


def _concatenate(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else concat_batches(batches)
