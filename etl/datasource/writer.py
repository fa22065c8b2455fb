"""The writing side of the `dataset` format: tasks write shards, the driver commits a manifest."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.etl.datasource import quality
from trainyard.etl.datasource.columns import Field, fields
from trainyard.etl.datasource.encoder import Encoder, Rows, refuse_not_finite, same_shapes
from trainyard.etl.datasource.options import DEFAULT_SPLIT, WriteOptions, check_split_name, provenance_of
from trainyard.etl.datasource.partitions import Written, joined, whole
from trainyard.etl.datasource.shards import SplitWriter
from trainyard.etl.datasource.statistics import ColumnStatistics
from trainyard.schemas import manifest, versions
from trainyard.schemas.manifest import DatasetManifest, Shard, Split


@dataclass
class TaskOutput(WriterCommitMessage):  # type: ignore[misc]
    """What one task wrote: for each split its shards, in order, and its columns' statistics."""

    partition: int
    fields: tuple[Field, ...]
    first_row: str
    shards: dict[str, list[Shard]] = field(default_factory=dict)
    statistics: dict[str, dict[str, ColumnStatistics]] = field(default_factory=dict)


class DatasetWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """One write of a dataset. Made on the driver, where it notes which version it will replace."""

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool) -> None:
        self._options = options
        self._fields = fields(schema, options)
        columns = [column for column in schema.fields if column.name != options.split_column]
        self._spark_schema = StructType(columns).json()
        self._keys = tuple(f.name for f in self._fields if f.kind == "scalar" and pa.types.is_string(f.element))
        self._write_id = uuid.uuid4().hex[:16]
        base = manifest.read_latest(options.path)
        self._number = base.number if base else 0
        self._replaced = base.partitions.get(options.partition or "") if base else None
        if base and not overwrite:
            self._refuse_to_append(base)

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
        """Make what the tasks wrote part of the dataset's next version, or all of it.

        Raises TrainyardError, and keeps nothing, when another writer was first or a split has no rows.
        """
        dataset = self._options.path
        outputs = sorted((m for m in messages if m and m.shards), key=lambda output: output.partition)
        written = self._written(outputs)
        quality.refuse(dataset, written.splits, dict(self._options.expect))
        self._remove_strays({shard.path for split in written.splits.values() for shard in split.shards})
        storage.replace(storage.join(dataset, self._figures), written.statistics.to_json().encode())
        while True:
            base = manifest.read_latest(dataset)
            if base:
                self._refuse_to_overtake(base, written)
                written = self._compared(base, written)
            document = self._next_version(base, written)
            self._refuse_empty_splits(document)
            with suppress(FileExistsError):  # another writer was first
                return manifest.commit(dataset, document)

    def abort(self, messages: list[TaskOutput | None]) -> None:
        """Remove what was written, unless the failure came after the version was committed."""
        dataset = self._options.path
        if self._directory in versions.referenced_paths(versions.list_all(dataset)):
            return
        for place in (self._directory, self._figures):
            storage.remove(storage.join(dataset, place))

    @property
    def _directory(self) -> str:
        return f"shards/{self._write_id}"

    @property
    def _figures(self) -> str:
        return f"statistics/{self._write_id}.json"

    def _refuse_to_append(self, base: DatasetManifest) -> None:
        name, holds = self._options.partition, f"{self._options.path} holds a dataset (version {base.number})"
        if name is None:
            raise TrainyardError(
                f"{holds}, to which rows are added as a partition. Name it, with option('partition', '2026-01-02'), "
                "or replace the dataset with mode('overwrite')."
            )
        if self._replaced:
            raise TrainyardError(
                f"{holds}, which has a partition {name!r}, of version {self._replaced.version}. Replace it with "
                "mode('overwrite'), or give these rows another name."
            )

    def _written(self, outputs: list[TaskOutput]) -> Written:
        if not outputs:
            raise TrainyardError(
                f"there are no rows to write to {self._options.path}. Look at what prepare returns, and at its source."
            )
        columns = same_shapes([(output.partition, output.fields, output.first_row) for output in outputs])
        found = {name for output in outputs for name in output.shards}
        return Written(
            directory=self._directory,
            columns=tuple(column.column for column in columns),
            spark_schema=self._spark_schema,
            splits={n: _split(n, outputs, columns) for n in self._options.splits or sorted(found) if n in found},
            provenance=provenance_of(self._options, self._write_id),
        )

    def _next_version(self, base: DatasetManifest | None, written: Written) -> DatasetManifest:
        partition = self._options.partition
        if partition is None or base is None:
            return whole(written, partition or "", base.number + 1 if base else 1)
        return joined(self._options.path, base, partition, written)

    def _compared(self, base: DatasetManifest, written: Written) -> Written:
        """With warnings of what has drifted."""
        if self._options.drift is None:
            return written
        told = quality.compare(self._options.path, written.splits, base.splits, self._options.drift)
        return replace(written, provenance=written.provenance.model_copy(update={"warnings": told}))

    def _refuse_empty_splits(self, document: DatasetManifest) -> None:
        empty = [name for name in self._options.splits if name not in document.splits]
        if empty:
            raise TrainyardError(
                f"split {empty[0]!r} has no rows: {document.rows:,} rows went to {', '.join(sorted(document.splits))}. "
                "Give it a larger fraction, export more rows, or leave the split out."
            )

    def _refuse_to_overtake(self, base: DatasetManifest, written: Written) -> None:
        """What this write replaces must be what it was when the write began."""
        name, what, winner = self._options.partition, self._options.path, base.provenance
        if name is None and base.number == self._number:
            return
        if name is not None:
            there = base.partitions.get(name)
            if there == self._replaced:
                return
            what, winner = f"partition {name!r} of {what}", there.provenance if there else winner
        raise TrainyardError(
            f"{what} was written by application {winner.application} at {winner.written_at} while "
            f"{written.provenance.application} was exporting to it; nothing of the latter is kept. "
            "Run it again to replace that version, or give each export a place of its own."
        )

    def _remove_strays(self, kept: set[str]) -> None:
        """Remove the files of attempts that failed or came second."""
        for name in storage.list_names(storage.join(self._options.path, self._directory)):
            if f"{self._directory}/{name}" not in kept:
                storage.remove(storage.join(self._options.path, self._directory, name))


class _Task:
    """The work of one attempt at one partition."""

    def __init__(self, writer: DatasetWriter, partition: int, attempt: int) -> None:
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
