"""The Spark data source `trainyard`, which writes and reads datasets of serialized batches.

>>> register(spark)
>>> df.write.format("trainyard").mode("overwrite").option("splitColumn", "split").save(uri)
>>> day.write.format("trainyard").mode("append").option("partition", "2026-01-02").save(uri)
>>> spark.read.format("trainyard").option("split", "test").load(uri)

`trainyard.etl.datasource.options` describes each option.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from functools import cached_property, partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from trainyard.errors import TrainyardError, reason
from trainyard.etl.datasource.columns import read_schema
from trainyard.etl.datasource.map_in_arrow import map_in_arrow
from trainyard.etl.datasource.options import ReadOptions, WriteOptions
from trainyard.etl.datasource.reader import DatasetReader
from trainyard.etl.datasource.writing.writer import DatasetWriter
from trainyard.schemas.datasets import manifest
from trainyard.schemas.datasets.manifest import DatasetManifest
from trainyard.schemas.specs.source import FORMAT

_OUTPUT = "output"


class TrainyardDataSource(DataSource):  # type: ignore[misc]
    """A dataset as Spark writes and reads it.

    A DataFrame reads one version: that of the option `version`, or the one that is current when it is loaded.
    """

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the schema of the DataFrame that was written, without the split column; any column may have nulls."""
        return read_schema(self._manifest.spark_schema)

    def reader(self, schema: StructType) -> DatasetReader:
        """Return the reader of the version to read."""
        return DatasetReader(schema, ReadOptions.parse(self.options), self._manifest)

    def writer(self, schema: StructType, overwrite: bool) -> DatasetWriter:
        """Return the writer of the next version."""
        return DatasetWriter(schema, WriteOptions.parse(self.options), overwrite)

    @cached_property
    def _manifest(self) -> DatasetManifest:
        options = ReadOptions.parse(self.options)
        return manifest.read_version(options.path, options.version, options.since)


def register(spark: SparkSession) -> None:
    """Register the format `trainyard` with a Spark session."""
    spark.dataSource.register(TrainyardDataSource)


def save(frame: DataFrame, uri: str, mode: str, options: Mapping[str, str], allow_empty: bool = False) -> None:
    """Write a DataFrame as a dataset, as `frame.write.format("trainyard")` does, and some seconds faster.

    Spark calls the writer of a data source in Python processes of its own, one after the other, to look it up, to plan
    the write and to commit it. Here this process does what they do. Tasks are the same in both cases.

    Args:
        frame: The rows.
        uri: The URI of the dataset.
        mode: "append" or "overwrite".
        options: The write options; `trainyard.etl.datasource.options` describes them.
        allow_empty: Whether to write a version without rows, and not to refuse a frame without any.

    Raises:
        TrainyardError: The data or an option is not valid, also if a Spark task found it.
    """
    parsed = WriteOptions.parse({**options, "path": uri})
    writer = DatasetWriter(frame.schema, parsed, mode == "overwrite", allow_empty)
    try:
        outputs = map_in_arrow(frame, partial(_write_task, writer), f"{_OUTPUT} binary").toArrow()
        writer.commit([pickle.loads(output.as_py()) for output in outputs.column(_OUTPUT)])  # noqa: S301  our tasks'
    except BaseException as error:
        with suppress(Exception):  # the first error counts
            writer.abort([])
        if message := reason(error):
            raise TrainyardError(message) from error
        raise


def _write_task(writer: DatasetWriter, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, and yield what it wrote."""
    yield pa.RecordBatch.from_pydict({_OUTPUT: [pickle.dumps(writer.write(iter(batches)))]})
