"""Build the manifest of a dataset's next version when one of its partitions is written or removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.writing.statistics import merge_statistics
from trainyard.files import uris
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.fitted_state import FittedReference
from trainyard.schemas.datasets.manifest import (
    Column,
    DatasetManifest,
    Partition,
    PartitionStatistics,
    Provenance,
    Shard,
    Split,
    Statistics,
)

StatisticsByColumn = Mapping[str, Statistics]


@dataclass(frozen=True)
class WriteResult:
    """What one write stored below `directory`."""

    directory: str
    columns: tuple[Column, ...]
    spark_schema: str
    splits: dict[str, Split]
    provenance: Provenance
    fitted: FittedReference | None = None

    @property
    def statistics(self) -> PartitionStatistics:
        """The statistics of this write's rows alone."""
        return PartitionStatistics(splits={name: split.statistics for name, split in self.splits.items()})


def build_single_partition_manifest(result: WriteResult, name: str, number: int) -> DatasetManifest:
    """Return version `number` of a dataset whose only partition is `result`, under `name`."""
    return _build_manifest(result, number, result.splits, {name: _build_partition(result, number)})


def add_partition(
    dataset: str, base: DatasetManifest, name: str, result: WriteResult, order: Sequence[str] = ()
) -> DatasetManifest:
    """Return the version after `base` in which `result` is the partition `name`, added or replaced.

    Columns have the order of `base`, whichever partition is written last. If no other partition stays, they may differ.
    Splits have the same order whichever partition is written first, which may not have all of them.

    Args:
        dataset: The URI of the dataset.
        base: Its newest version.
        name: The name of the partition.
        result: What was written.
        order: The order of the splits; others come after these, sorted by name.

    Raises:
        TrainyardError: The columns of `result` differ from those of `base`, or `base` was written without partitions.
    """
    check_partition(dataset, base, name)
    number = base.number + 1
    others = {key: partition for key, partition in base.partitions.items() if key != name}
    if not others:
        return build_single_partition_manifest(result, name, number)
    _check_columns(dataset, base, name, result)
    if result.fitted != base.fitted:
        raise TrainyardError(
            f"partition {name!r} cannot be added to {dataset}: its categories, label or state of fit= are not those of "
            f"version {base.number}, whose indices mean other values. If another run wrote the first partition "
            "meanwhile, a retry uses its values; otherwise export the partition again with the same options, or all "
            "partitions to another dataset."
        )
    result = replace(result, columns=base.columns, spark_schema=base.spark_schema)
    partitions = dict(sorted((others | {name: _build_partition(result, number)}).items()))
    statistics = collect_statistics(dataset, base, others)
    names = [*order, *sorted({*base.splits, *result.splits}.difference(order))]
    splits = _merge_splits(names, base, partitions, statistics, result.splits)
    return _build_manifest(result, number, splits, partitions)


def remove_partition(dataset: str, name: str) -> DatasetManifest:
    """Commit a version of a dataset without one of its partitions. Versions before still have it, until they expire.

    Raises:
        TrainyardError: There is no such partition, or it is the only one.
    """
    while True:
        base = manifests.read_current(dataset)
        check_removal(base, dataset, name)
        kept = {key: partition for key, partition in base.partitions.items() if key != name}
        provenance = Provenance(application="", written_at=datetime.now(UTC).isoformat(timespec="seconds"))
        splits = _merge_splits(base.splits, base, kept, collect_statistics(dataset, base, kept), {})
        document = base.model_copy(
            update={
                "number": base.number + 1, "splits": splits, "partitions": kept, "provenance": provenance,
                "content_hash": manifests.content_hash(base.columns, splits, base.fitted),
            }
        )  # fmt: skip
        with suppress(FileExistsError):  # another writer committed this version number first
            manifests.commit(dataset, document)
            return document


def check_removal(base: DatasetManifest, dataset: str, name: str) -> None:
    """Check that a version of a dataset has the partition `name`, and others. Raises TrainyardError."""
    if name not in base.partitions:
        names = ", ".join(key or "(unnamed)" for key in base.partitions)
        raise TrainyardError(f"{dataset} has no partition {name!r}; it has {names}.")
    if len(base.partitions) == 1:
        raise TrainyardError(f"{name!r} is the only partition of {dataset}; remove the directory of the dataset.")


def check_partition(dataset: str, base: DatasetManifest, name: str) -> None:
    """Check that the partition `name` is not added to rows that were written without a partition.

    Raises:
        TrainyardError: It is, so that a row could be in the dataset twice.
    """
    if name and list(base.partitions) == [""]:
        raise TrainyardError(
            f"partition {name!r} cannot be added to {dataset}: version {base.number} was written without a partition, "
            "and may have the same rows. Export all partitions to another dataset, or write without a partition."
        )


def collect_statistics(
    dataset: str, base: DatasetManifest, kept: Mapping[str, Partition]
) -> dict[str, StatisticsByColumn]:
    """Return the statistics by split of some partitions of a version.

    Unless these are all, they are merged from the files of each: statistics of one part cannot be subtracted.
    """
    if len(kept) == len(base.partitions):
        return {name: split.statistics for name, split in base.splits.items()}
    merged: dict[str, StatisticsByColumn] = {}
    for partition in kept.values():
        part = PartitionStatistics.load(uris.join(dataset, partition.statistics))
        for split, statistics in part.splits.items():
            merged[split] = _merge_columns(merged.get(split), statistics) or {}
    return merged


def _merge_splits(
    names: Iterable[str],
    base: DatasetManifest,
    partitions: Mapping[str, Partition],
    kept: Mapping[str, StatisticsByColumn],
    added: Mapping[str, Split],
) -> dict[str, Split]:
    """Return the splits `names` that some partitions have: shards of `base` and of what was `added`, and statistics."""
    splits = {}
    for name in names:
        by_directory = _group_by_directory(base.splits.get(name)) | _group_by_directory(added.get(name))
        shards = tuple(shard for p in partitions.values() for shard in by_directory.get(p.directory, ()))
        statistics = _merge_columns(kept.get(name), added[name].statistics if name in added else None)
        if shards and statistics:
            rows = sum(shard.rows for shard in shards)
            splits[name] = Split(rows=rows, shards=shards, statistics=dict(statistics))
    return splits


def _build_manifest(
    result: WriteResult, number: int, splits: dict[str, Split], partitions: dict[str, Partition]
) -> DatasetManifest:
    return DatasetManifest(
        number=number, columns=result.columns, splits=splits, partitions=partitions,
        spark_schema=result.spark_schema, provenance=result.provenance, fitted=result.fitted,
        content_hash=manifests.content_hash(result.columns, splits, result.fitted),
    )  # fmt: skip


def _build_partition(result: WriteResult, number: int) -> Partition:
    rows = sum(split.rows for split in result.splits.values())
    return Partition(directory=result.directory, version=number, rows=rows, provenance=result.provenance)


def _merge_columns(one: StatisticsByColumn | None, other: StatisticsByColumn | None) -> StatisticsByColumn | None:
    if one is None or other is None:
        return other if one is None else one
    return {column: merge_statistics(statistics, other[column]) for column, statistics in one.items()}


def _group_by_directory(split: Split | None) -> dict[str, list[Shard]]:
    groups: dict[str, list[Shard]] = {}
    for shard in split.shards if split else ():
        groups.setdefault(shard.path.rsplit("/", 1)[0], []).append(shard)
    return groups


def _check_columns(dataset: str, base: DatasetManifest, name: str, result: WriteResult) -> None:
    expected = {column.name: column for column in base.columns}
    actual = {column.name: column for column in result.columns}
    for column in dict.fromkeys([*expected, *actual]):
        if expected.get(column) != actual.get(column):
            raise TrainyardError(
                f"partition {name!r} cannot be added to {dataset}: column {column!r} is "
                f"{_describe(actual.get(column))} in the partition, but {_describe(expected.get(column))} in version "
                f"{base.number} of the dataset. Return the same columns from prepare, or export all partitions to "
                "another dataset."
            )


def _describe(column: Column | None) -> str:
    if column is None:
        return "missing"
    shape = f" {list(column.shape)}" if column.kind == "tensor" else ""
    return f"a {column.kind} of {column.type}{shape}"
