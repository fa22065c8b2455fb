"""Write a dataset with Spark: tasks write shards, and the driver commits a manifest of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter
from pyspark.sql.types import StructType

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import Field, build_fields
from trainyard.etl.datasource.options import WriteOptions, get_provenance
from trainyard.etl.datasource.writing import quality, task_statistics
from trainyard.etl.datasource.writing.encoder import unify_fields
from trainyard.etl.datasource.writing.partitions import (
    WriteResult,
    add_partition,
    build_single_partition_manifest,
    check_partition,
    collect_statistics,
)
from trainyard.etl.datasource.writing.statistics import ColumnStatistics
from trainyard.etl.datasource.writing.task_statistics import SplitStatistics
from trainyard.etl.datasource.writing.task_writer import TaskOutput, TaskWriter
from trainyard.files import storage, uris
from trainyard.schemas.datasets import manifest, versions
from trainyard.schemas.datasets.manifest import DatasetManifest, Partition, Split


class DatasetWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Write one version of a dataset.

    It is created on the driver, where it records the version that it will replace, and is then pickled to tasks.
    """

    def __init__(self, schema: StructType, options: WriteOptions, overwrite: bool, allow_empty: bool = False) -> None:
        self.options = options
        self._allow_empty = allow_empty
        self._fields = build_fields(schema, options)
        columns = [column for column in schema.fields if column.name != options.split_column]
        self._spark_schema = StructType(columns).json()
        self._write_id = uuid.uuid4().hex[:16]
        base = manifest.read_latest(options.path)
        self._base_number = base.number if base else 0
        self._base_partition = base.partitions.get(options.partition or "") if base else None
        if base and not overwrite:
            self._check_append(base)
        if base and options.partition is not None:
            check_partition(options.path, base, options.partition)

    @property
    def directory(self) -> str:
        """The directory of this write's shards, relative to the dataset."""
        return f"shards/{self._write_id}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutput:
        """Write the rows of one task. If it fails, its files are removed."""
        context = TaskContext.get()
        assert context is not None
        task = TaskWriter(self.options, self.directory, self._fields, context.partitionId(), context.taskAttemptId())
        try:
            for batch in iterator:
                if batch.num_rows:
                    task.add(batch)
            return task.finish()
        except BaseException:
            task.discard()
            raise

    def commit(self, messages: list[TaskOutput | None]) -> None:
        """Commit what the tasks wrote as the dataset's next version, or as a partition of it.

        Raises:
            TrainyardError: Another writer committed first, a split has no rows, the data does not meet expectations,
                or it drifted too far. Nothing is committed then.
        """
        dataset = self.options.path
        outputs = sorted((m for m in messages if m and m.shards), key=lambda output: output.partition)
        result = self._build_result(outputs)
        self._check_splits(result)
        warnings = quality.check_expectations(
            dataset, result.columns, result.splits, dict(self.options.expect), self.options.expect_rows
        )
        result = _add_warnings(result, warnings)
        self._remove_other_files({shard.path for split in result.splits.values() for shard in split.shards})
        storage.replace(uris.join(dataset, self._statistics_path), result.statistics.to_json().encode())
        while True:
            base = manifest.read_latest(dataset)
            if base:
                self._check_base(base, result)
            document = self._build_next_version(base, _add_warnings(result, self._compare(base, result)))
            with suppress(FileExistsError):  # another writer committed this version number first
                return manifest.commit(dataset, document)

    def abort(self, messages: list[TaskOutput | None]) -> None:
        """Remove the files of this write, unless it failed after its version was committed."""
        dataset = self.options.path
        if any(self.directory in versions.referenced_paths(v) for v in versions.iterate(dataset, self._base_number)):
            return
        for path in (self.directory, self._statistics_path):
            storage.remove(uris.join(dataset, path))

    @property
    def _statistics_path(self) -> str:
        return f"statistics/{self._write_id}.json"

    def _check_append(self, base: DatasetManifest) -> None:
        """Check that mode "append" adds a partition with a new name."""
        name, dataset = self.options.partition, f"{self.options.path} is a dataset (version {base.number})"
        if name is None:
            raise TrainyardError(
                f"{dataset}, to which rows can only be appended as a partition. Name it with "
                "option('partition', '2026-01-02'), or replace the dataset with mode('overwrite')."
            )
        if self._base_partition:
            raise TrainyardError(
                f"{dataset} that has a partition {name!r}, written in version {self._base_partition.version}. "
                "Replace it with mode('overwrite'), or choose another name."
            )

    def _build_result(self, outputs: list[TaskOutput]) -> WriteResult:
        if not outputs and not self._allow_empty:
            raise TrainyardError(
                f"there are no rows to write to {self.options.path}. Check what prepare returns, and its source."
            )
        written = [(output.partition, output.fields, output.first_row) for output in outputs]
        columns = unify_fields(written) if written else tuple(map(_describe_empty, self._fields))
        names = {name for output in outputs for name in output.shards}
        statistics = _merge_statistics(self.options.path, outputs)
        ordered = [name for name in self.options.splits or sorted(names) if name in names]
        return WriteResult(
            directory=self.directory,
            columns=tuple(column.column for column in columns),
            spark_schema=self._spark_schema,
            splits={name: _merge_outputs(name, outputs, columns, statistics[name]) for name in ordered},
            provenance=get_provenance(self.options, self._write_id),
            fitted=self.options.fitted,
        )

    def _build_next_version(self, base: DatasetManifest | None, result: WriteResult) -> DatasetManifest:
        partition = self.options.partition
        if partition is None or base is None:
            return build_single_partition_manifest(result, partition or "", base.number + 1 if base else 1)
        return add_partition(self.options.path, base, partition, result, self.options.splits)

    def _compare(self, base: DatasetManifest | None, result: WriteResult) -> tuple[str, ...]:
        """Return warnings about what differs from the partitions that stay; if none does, from those replaced."""
        name, dataset = self.options.partition, self.options.path
        before = base.partitions if base else {}
        others = {other: partition for other, partition in before.items() if name not in (None, other)}
        warnings = self._find_empty_splits(base, others, result)
        warnings += quality.compare_models(result.provenance, others)
        if base and self.options.drift:
            previous = collect_statistics(dataset, base, others or before)
            if base.fitted != result.fitted:  # numbers that mean other values do not compare
                sizes = [*(base.fitted.sizes if base.fitted else ()), *(result.fitted.sizes if result.fitted else ())]
                previous = {
                    split: {name: of_column for name, of_column in statistics.items() if name not in sizes}
                    for split, statistics in previous.items()
                }
            warnings += quality.check_drift(dataset, result.columns, result.splits, previous, self.options.drift)
        return warnings

    def _check_splits(self, result: WriteResult) -> None:
        """Check that each declared split has rows, unless this is a partition: others may have them."""
        empty = [name for name in self.options.splits if name not in result.splits]
        if empty and self.options.partition is None:
            rows = sum(split.rows for split in result.splits.values())
            raise TrainyardError(
                f"split {empty[0]!r} has no rows: {rows:,} rows are in {', '.join(sorted(result.splits))}. Increase "
                "its fraction or choose an earlier date, export more rows (equal ones share a split), or remove the "
                "split."
            )

    def _find_empty_splits(
        self, base: DatasetManifest | None, others: Mapping[str, Partition], result: WriteResult
    ) -> tuple[str, ...]:
        """Return a warning for each declared split that has rows neither in this partition nor in the others."""
        kept = {partition.directory for partition in others.values()}
        before = {
            name for name, split in (base.splits if base else {}).items()
            if any(shard.path.rpartition("/")[0] in kept for shard in split.shards)
        }  # fmt: skip
        return tuple(
            f"split {name} has no rows, in this partition and in all others"
            for name in self.options.splits if name not in before | result.splits.keys()
        )  # fmt: skip

    def _check_base(self, base: DatasetManifest, result: WriteResult) -> None:
        """Check that no other writer replaced what this write replaces since it began."""
        partition, replaced, winner = self.options.partition, self.options.path, base.provenance
        if partition is None and base.number == self._base_number:
            return
        if partition is not None:
            current = base.partitions.get(partition)
            if current == self._base_partition:
                return
            replaced, winner = f"partition {partition!r} of {replaced}", current.provenance if current else winner
        raise TrainyardError(
            f"{replaced} was written by application {winner.application} at {winner.written_at} while "
            f"{result.provenance.application} was exporting to it; the latter was not committed. "
            "Export again to replace that version, or export to another path."
        )

    def _remove_other_files(self, kept: set[str]) -> None:
        """Remove the files of failed attempts, and of speculative ones that finished second."""
        for name in storage.list_names(uris.join(self.options.path, self.directory)):
            if f"{self.directory}/{name}" not in kept:
                storage.remove(uris.join(self.options.path, self.directory, name))


def _add_warnings(result: WriteResult, warnings: tuple[str, ...]) -> WriteResult:
    known = result.provenance.warnings
    return replace(result, provenance=result.provenance.model_copy(update={"warnings": (*known, *warnings)}))


def _describe_empty(field: Field) -> Field:
    """Return a column without rows: the length of an array is not known then."""
    return field if field.shape is not None else replace(field, kind="list", shape=())


def _merge_statistics(dataset: str, outputs: list[TaskOutput]) -> SplitStatistics:
    """Return the statistics of all tasks together; those in files are read one after the other."""
    total: SplitStatistics = {}
    for output in outputs:
        statistics = output.statistics
        if path := output.statistics_path:
            statistics = task_statistics.load(uris.join(dataset, path), output.statistics_sha256)
        for split, part in statistics.items():
            total[split] = task_statistics.merge(total[split], part) if split in total else part
    return total


def _merge_outputs(
    name: str, outputs: list[TaskOutput], columns: tuple[Field, ...], total: dict[str, ColumnStatistics]
) -> Split:
    """Return the split `name` from what each task wrote of it, and the statistics of its columns."""
    shards = tuple(shard for output in outputs for shard in output.shards.get(name, []))
    statistics = {column.name: total[column.name].summarize(column) for column in columns}
    return Split(rows=sum(shard.rows for shard in shards), shards=shards, statistics=statistics)
