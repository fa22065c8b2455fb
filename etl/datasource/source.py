"""The Spark data source `trainyard`, which writes and reads datasets of serialized batches.

>>> register(spark)
>>> df.write.format("trainyard").mode("overwrite").option("splitColumn", "split").save(uri)
>>> day.write.format("trainyard").mode("append").option("partition", "2026-01-02").save(uri)
>>> spark.read.format("trainyard").option("split", "test").load(uri)

`trainyard.etl.datasource.options` describes each option.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from trainyard.errors import TrainyardError, reason
from trainyard.etl.datasource.columns import read_schema
from trainyard.etl.datasource.options import ReadOptions, WriteOptions
from trainyard.etl.datasource.reader import DatasetReader
from trainyard.etl.datasource.writer import DatasetWriter
from trainyard.schemas import manifest
from trainyard.schemas.manifest import DatasetManifest
from trainyard.schemas.specs.source import FORMAT


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


def save(frame: DataFrame, uri: str, mode: str, options: Mapping[str, str]) -> None:
    """Write a DataFrame as a dataset.

    Args:
        frame: The rows.
        uri: The URI of the dataset.
        mode: "append" or "overwrite".
        options: The write options; `trainyard.etl.datasource.options` describes them.

    Raises:
        TrainyardError: The data or an option is not valid, also if a Spark task found it.
    """
    try:
        with _activate(frame.sparkSession):
            frame.write.format(FORMAT).mode(mode).options(**options).save(uri)
    except Exception as error:
        if message := reason(error):
            raise TrainyardError(message) from error
        raise


@contextmanager
def _activate(spark: SparkSession) -> Iterator[None]:
    """Make a session that of this thread: the JVM looks up the format of a write there, and other threads have none."""
    sessions = spark._jvm.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        sessions.setActiveSession(before.get()) if before.isDefined() else sessions.clearActiveSession()
