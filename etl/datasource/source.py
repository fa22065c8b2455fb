"""The Spark data source `dataset`: serialized batches as `df.write` and `spark.read` see them.

register(spark)
df.write.format("trainyard").mode("overwrite").option("splitColumn", "split").save(uri)
day.write.format("trainyard").mode("append").option("partition", "2026-01-02").save(uri)
spark.read.format("trainyard").option("split", "test").load(uri)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from trainyard.errors import TrainyardError, reason
from trainyard.etl.datasource.options import ReadOptions, WriteOptions
from trainyard.etl.datasource.reader import DatasetReader
from trainyard.etl.datasource.writer import DatasetWriter
from trainyard.schemas import manifest
from trainyard.schemas.manifest import DatasetManifest

FORMAT = "trainyard"


class TrainyardDataSource(DataSource):  # type: ignore[misc]
    """A dataset. A DataFrame reads one version: the one asked for, or current when it was loaded."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """The schema of the DataFrame that was written, without the split column."""
        return StructType.fromJson(json.loads(self._manifest.spark_schema))

    def reader(self, schema: StructType) -> DatasetReader:
        return DatasetReader(schema, ReadOptions.parse(self.options), self._manifest)

    def writer(self, schema: StructType, overwrite: bool) -> DatasetWriter:
        return DatasetWriter(schema, WriteOptions.parse(self.options), overwrite)

    @cached_property
    def _manifest(self) -> DatasetManifest:
        asked = ReadOptions.parse(self.options)
        return manifest.read_version(asked.path, asked.version, asked.since)


def register(spark: SparkSession) -> None:
    """Make the format `dataset` known to the session."""
    spark.dataSource.register(TrainyardDataSource)


def save(frame: DataFrame, uri: str, mode: str, options: Mapping[str, str]) -> None:
    """Write `frame` as batches. Raises TrainyardError with what a worker had to say to the user."""
    try:
        frame.write.format(FORMAT).mode(mode).options(**options).save(uri)
    except Exception as error:
        if message := reason(error):
            raise TrainyardError(message) from error
        raise
