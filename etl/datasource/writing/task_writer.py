"""Write the rows of one Spark task as shards, split by split, with the statistics of each column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import Field
from trainyard.etl.datasource.options import DEFAULT_SPLIT, WriteOptions, check_split_name
from trainyard.etl.datasource.writing import task_statistics
from trainyard.etl.datasource.writing.encoder import Encoder, SparkBatch, not_finite_error
from trainyard.etl.datasource.writing.shards import SplitWriter
from trainyard.etl.datasource.writing.statistics import ColumnStatistics
from trainyard.etl.datasource.writing.task_statistics import SplitStatistics
from trainyard.files import storage, uris
from trainyard.schemas.datasets.manifest import Shard


@dataclass
class TaskOutput(WriterCommitMessage):  # type: ignore[misc]
    """What one task wrote: the shards of each split, in order, and the statistics of its columns.

    Large statistics are in a file of the write's directory, whose path relative to the dataset is `statistics_path`
    and whose digest is `statistics_sha256`.
    """

    partition: int
    fields: tuple[Field, ...]
    first_row: str
    shards: dict[str, list[Shard]] = field(default_factory=dict)
    statistics: SplitStatistics = field(default_factory=dict)
    statistics_path: str = ""
    statistics_sha256: str = ""


class TaskWriter:
    """Write the rows of one attempt at one partition.

    Args:
        options: The options of the write.
        directory: The directory of this write's shards, relative to the dataset.
        fields: The columns to write.
        partition: The number of the Spark partition.
        attempt: The number of the attempt, which no other attempt of the application shares.
    """

    def __init__(
        self, options: WriteOptions, directory: str, fields: tuple[Field, ...], partition: int, attempt: int
    ) -> None:
        self._options = options
        self._directory = directory
        self._partition = partition
        self._attempt = attempt
        self._encoder = Encoder(fields)
        self._keys = tuple(f.name for f in fields if f.kind == "scalar" and pa.types.is_string(f.element))
        self._rows = 0
        self._splits: dict[str, SplitWriter] = {}
        self._statistics: SplitStatistics = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Write a batch of at least one row.

        Raises:
            TrainyardError: A value, a shape or a split is not valid; the message names the row.
        """
        rows = SparkBatch(batch, self._partition, self._rows, self._keys)
        self._rows += batch.num_rows
        encoded = self._encoder.encode(rows)
        if self._options.split_column is None:
            self._add_to_split(DEFAULT_SPLIT, encoded, rows)
            return
        for split, part in group_rows(self._get_split_values(rows), encoded):
            self._add_to_split(split, part, rows)

    def finish(self) -> TaskOutput:
        """Complete all shards and return what was written."""
        shards = {split: writer.close() for split, writer in self._splits.items()}
        output = TaskOutput(self._partition, self._encoder.fields, self._encoder.first_row, shards, self._statistics)
        uri = uris.join(self._options.path, self._statistics_path)
        if sha256 := task_statistics.save_if_large(uri, self._statistics):
            output.statistics, output.statistics_path, output.statistics_sha256 = {}, self._statistics_path, sha256
        return output

    def discard(self) -> None:
        """Remove all shards of this attempt."""
        for writer in self._splits.values():
            writer.discard()
        storage.remove(uris.join(self._options.path, self._statistics_path))

    @property
    def _statistics_path(self) -> str:
        return f"{self._directory}/statistics-{self._partition:05d}-{self._attempt}.arrow"

    def _add_to_split(self, split: str, part: pa.RecordBatch, rows: SparkBatch) -> None:
        if split not in self._splits:
            self._open_split(split)
        for column, array in zip(self._encoder.fields, part.columns, strict=True):
            moments = self._statistics[split][column.name].add(column, array)
            if moments and not moments.finite:
                raise not_finite_error(column, rows)
        self._splits[split].add(part)

    def _open_split(self, split: str) -> None:
        def build_path(sequence: int) -> str:
            return f"{self._directory}/{split}-{self._partition:05d}-{sequence:03d}-{self._attempt}.arrow"

        fields, rows_per_batch = self._encoder.fields, self._options.rows_per_batch
        self._splits[split] = SplitWriter(self._options.path, build_path, fields, rows_per_batch)
        self._statistics[split] = {column.name: ColumnStatistics() for column in fields}

    def _get_split_values(self, rows: SparkBatch) -> pa.DictionaryArray:
        name = self._options.split_column
        values = rows.batch.column(name).dictionary_encode()
        if values.null_count:
            index = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
            raise TrainyardError(
                f"the split column {name!r} is null in {rows.describe_row(index)}; set a split in each row."
            )
        for split in values.dictionary.to_pylist():
            check_split_name(split)
            if self._options.splits and split not in self._options.splits:
                raise TrainyardError(
                    f"the split column {name!r} contains the split {split!r}, but `splits` declares "
                    f"{', '.join(self._options.splits)}. Add it to `splits`, or drop those rows."
                )
        return values


def group_rows(values: pa.DictionaryArray, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each distinct value with its rows of `batch`, in their order; without a copy if rows are sorted."""
    codes = values.indices.to_numpy()
    if (np.diff(codes) < 0).any():
        batch = batch.take(pa.array(np.argsort(codes, kind="stable")))
    ends = np.cumsum(np.bincount(codes))
    for value, start, end in zip(values.dictionary.to_pylist(), [0, *ends[:-1]], ends, strict=True):
        yield value, batch.slice(start, end - start)
