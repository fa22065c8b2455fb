"""The writing side of the `batches` format: tasks write shards, the driver commits a manifest."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from etl.columns import Field, fields
from etl.encode import Encoder, Rows, refuse_not_finite, same_shapes
from etl.options import DEFAULT_SPLIT, WriteOptions, check_split_name, provenance_of
from etl.shards import SplitWriter
from etl.statistics import ColumnStatistics
from trainyard.contract import manifest, storage
from trainyard.contract.errors import TrainyardError
from trainyard.contract.manifest import BatchManifest, Shard, Split


@dataclass
class TaskOutput(WriterCommitMessage):  # type: ignore[misc]
    """What one task wrote: for each split its shards, in order, and its columns' statistics."""

    partition: int
    fields: tuple[Field, ...]
    first_row: str
    shards: dict[str, list[Shard]] = field(default_factory=dict)
    statistics: dict[str, dict[str, ColumnStatistics]] = field(default_factory=dict)


class BatchesWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """One write of a dataset. Made on the driver, where it notes which version it will replace."""

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool) -> None:
        self._options = options
        self._fields = fields(schema, options)
        columns = [column for column in schema.fields if column.name != options.split_column]
        self._spark_schema = StructType(columns).json()
        self._keys = tuple(f.name for f in self._fields if f.kind == "scalar" and pa.types.is_string(f.element))
        self._write_id = uuid.uuid4().hex[:16]
        self._number = manifest.current_number(options.path) + 1
        if self._number > 1 and not overwrite:
            raise TrainyardError(
                f"{options.path} holds a batch dataset (version {self._number - 1}), and batches cannot be appended "
                "to one. Replace it with mode('overwrite'), or write to another place."
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutput:
        """Write the rows of one task. Removes its files again when it fails."""
        context = TaskContext.get()
        assert context is not None
        task = _Task(self, context.partitionId(), context.taskAttemptId())
        try:
            for batch in iterator:
                if batch.num_rows:
                    task.add(batch)
            return task.finish()
        except BaseException:
            task.discard()
            raise

    def commit(self, messages: list[TaskOutput | None]) -> None:
        """Make what the tasks wrote the dataset's current version.

        Raises TrainyardError, and keeps nothing, when another writer was first or a split has no rows.
        """
        dataset = self._options.path
        outputs = sorted((m for m in messages if m and m.shards), key=lambda output: output.partition)
        document = self._manifest(outputs)
        self._remove_strays({shard.path for split in document.splits.values() for shard in split.shards})
        manifest.commit(dataset, document)

    def abort(self, messages: list[TaskOutput | None]) -> None:
        """Remove what was written, unless the failure came after the version was committed."""
        dataset = self._options.path
        if manifest.current_number(dataset) >= self._number:
            shards = [shard for split in manifest.current(dataset).splits.values() for shard in split.shards]
            if any(shard.path.startswith(f"{self._directory}/") for shard in shards):
                return
        storage.remove(storage.join(dataset, self._directory))

    @property
    def _directory(self) -> str:
        return f"shards/{self._write_id}"

    def _manifest(self, outputs: list[TaskOutput]) -> BatchManifest:
        if not outputs:
            raise TrainyardError(
                f"there are no rows to write to {self._options.path}. Look at what prepare returns, and at its source."
            )
        columns = same_shapes([(output.partition, output.fields, output.first_row) for output in outputs])
        splits = {name: _split(name, outputs, columns) for name in self._split_names(outputs)}
        described = tuple(column.column for column in columns)
        return BatchManifest(
            number=self._number,
            columns=described,
            splits=splits,
            spark_schema=self._spark_schema,
            provenance=provenance_of(self._options, self._write_id),
            content_hash=manifest.content_hash(described, splits),
        )

    def _split_names(self, outputs: list[TaskOutput]) -> list[str]:
        found = {name for output in outputs for name in output.shards}
        empty = [name for name in self._options.splits if name not in found]
        if empty:
            rows = sum(shard.rows for output in outputs for shards in output.shards.values() for shard in shards)
            raise TrainyardError(
                f"split {empty[0]!r} has no rows: {rows:,} rows went to {', '.join(sorted(found))}. "
                "Give it a larger fraction, export more rows, or leave the split out."
            )
        return list(self._options.splits) or sorted(found)

    def _remove_strays(self, kept: set[str]) -> None:
        """Remove the files of attempts that failed or came second."""
        for name in storage.names(storage.join(self._options.path, self._directory)):
            if f"{self._directory}/{name}" not in kept:
                storage.remove(storage.join(self._options.path, self._directory, name))


class _Task:
    """The work of one attempt at one partition."""

    def __init__(self, writer: BatchesWriter, partition: int, attempt: int) -> None:
        self._writer = writer
        self._options = writer._options
        self._partition = partition
        self._attempt = attempt
        self._encoder = Encoder(writer._fields)
        self._rows = 0
        self._splits: dict[str, SplitWriter] = {}
        self._statistics: dict[str, dict[str, ColumnStatistics]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        rows = Rows(batch, self._partition, self._rows, self._writer._keys)
        self._rows += batch.num_rows
        encoded = self._encoder.encode(rows)
        if self._options.split_column is None:
            self._add(DEFAULT_SPLIT, encoded, rows)
            return
        for split, part in runs(self._split_values(rows), encoded):
            self._add(split, part, rows)

    def finish(self) -> TaskOutput:
        shards = {split: writer.close() for split, writer in self._splits.items()}
        return TaskOutput(self._partition, self._encoder.fields, self._encoder.first_row, shards, self._statistics)

    def discard(self) -> None:
        for writer in self._splits.values():
            writer.discard()

    def _add(self, split: str, part: pa.RecordBatch, rows: Rows) -> None:
        if split not in self._splits:
            self._open(split)
        for column, array in zip(self._encoder.fields, part.columns, strict=True):
            found = self._statistics[split][column.name].add(column, array)
            if found and not found.finite:
                raise refuse_not_finite(column, rows)
        self._splits[split].add(part)

    def _open(self, split: str) -> None:
        def path(sequence: int) -> str:
            name = f"{split}-{self._partition:05d}-{sequence:03d}-{self._attempt}.arrow"
            return f"{self._writer._directory}/{name}"

        columns, rows = self._encoder.fields, self._options.rows_per_batch
        self._splits[split] = SplitWriter(self._options.path, path, columns, rows)
        self._statistics[split] = {column.name: ColumnStatistics() for column in columns}

    def _split_values(self, rows: Rows) -> pa.DictionaryArray:
        name = self._options.split_column
        values = rows.batch.column(name).dictionary_encode()
        if values.null_count:
            index = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
            raise TrainyardError(f"the split column {name!r} is null in {rows.name(index)}; each row needs a split.")
        for split in values.dictionary.to_pylist():
            check_split_name(split)
            if self._options.splits and split not in self._options.splits:
                raise TrainyardError(
                    f"the split column {name!r} names the split {split!r}; declared are "
                    f"{', '.join(self._options.splits)}. Add it to 'splits', or drop those rows."
                )
        return values


def runs(values: pa.DictionaryArray, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of `batch` for each distinct value, in order; without a copy when rows come sorted."""
    codes = values.indices.to_numpy()
    if (np.diff(codes) < 0).any():
        batch = batch.take(pa.array(np.argsort(codes, kind="stable")))
    ends = np.cumsum(np.bincount(codes))
    for value, start, end in zip(values.dictionary.to_pylist(), [0, *ends[:-1]], ends, strict=True):
        yield value, batch.slice(start, end - start)


def _split(name: str, outputs: list[TaskOutput], columns: tuple[Field, ...]) -> Split:
    shards = tuple(shard for output in outputs for shard in output.shards.get(name, []))
    parts = [output.statistics[name] for output in outputs if name in output.statistics]
    total = parts[0]
    for part in parts[1:]:
        total = {column: found.merge(part[column]) for column, found in total.items()}
    statistics = {column.name: total[column.name].result(column) for column in columns}
    return Split(rows=sum(shard.rows for shard in shards), shards=shards, statistics=statistics)
