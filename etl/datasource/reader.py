"""Read a dataset with Spark: one partition of the DataFrame for each shard."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from trainyard.etl.datasource import columns, tensors
from trainyard.etl.datasource.options import ReadOptions
from trainyard.etl.datasource.writing import shards
from trainyard.files import storage, uris
from trainyard.schemas.datasets.manifest import DatasetManifest, Shard
from trainyard.trainer.data.reading.arrow_files import altered_if_invalid, check_index, read_batch


class ShardPartition(InputPartition):  # type: ignore[misc]
    """A partition of the DataFrame, which is one shard."""

    def __init__(self, shard: Shard) -> None:
        super().__init__(shard)
        self.shard = shard


class DatasetReader(DataSourceReader):  # type: ignore[misc]
    """Read the shards of one version of a dataset."""

    def __init__(self, schema: StructType, options: ReadOptions, manifest: DatasetManifest) -> None:
        self._schema = schema
        self._options = options
        splits = [manifest.split(options.split)] if options.split else manifest.splits.values()
        self._shards = [shard for split in splits for shard in split.shards]

    def partitions(self) -> list[ShardPartition]:
        """Return one partition for each shard."""
        return [ShardPartition(shard) for shard in self._shards]

    def read(self, partition: ShardPartition) -> Iterator[pa.RecordBatch]:
        """Yield the shard's rows as Spark's Arrow types.

        Raises:
            TrainyardError: The shard is missing, or differs from its entry in the manifest.
        """
        if not isinstance(partition, ShardPartition):  # Spark's own, of a dataset without shards
            return
        shard = partition.shard
        if self._options.verify:
            shards.verify(self._options.path, shard)
        yield from read_shard(self._options.path, shard, columns.to_arrow(self._schema))


def read_shard(dataset: str, shard: Shard, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a shard with the columns of Spark's Arrow `schema`; memory mapped if it is local.

    Raises:
        TrainyardError: The shard is missing, or is not what the manifest describes.
    """
    uri = uris.join(dataset, shard.path)
    local = storage.local_path(uri)
    try:
        source = pa.memory_map(str(local)) if local else pa.PythonFile(storage.open_input(uri), "r")
    except FileNotFoundError:
        raise shards.missing_shard_error(dataset, shard) from None
    with source:
        shards.check_size(dataset, shard, source.size())
        check_index(uri, shard)
        with altered_if_invalid(uri):
            stored = pa.ipc.open_file(source).schema
        for location in shard.batches:
            with altered_if_invalid(uri):
                source.seek(location.offset)
                batch = read_batch(source.read_buffer(location.length), stored, location.rows)
                batch.validate(full=True)  # Spark reads all values
                converted = to_spark(batch, schema)
            yield converted


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a shard's record batch with the columns of Spark's Arrow `schema`; tensors become flat lists."""
    arrays = []
    for field in schema:
        array = batch.column(field.name)
        if isinstance(array, pa.ExtensionArray):
            array = tensors.to_list(array, field.type)
        elif pa.types.is_list(field.type):
            array = pa.ListArray.from_arrays(array.offsets, array.values, type=field.type)
        elif array.type != field.type:
            array = array.cast(field.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
