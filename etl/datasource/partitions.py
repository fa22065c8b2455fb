"""What a dataset becomes when one of its partitions is written: the others stay as they lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.etl.datasource.statistics import merged
from trainyard.schemas import manifest as manifests
from trainyard.schemas.manifest import (
    Column,
    DatasetManifest,
    Partition,
    PartitionStatistics,
    Provenance,
    Shard,
    Split,
    Statistics,
)

Figures = Mapping[str, Statistics]


@dataclass(frozen=True)
class Written:
    """What one write made, below `directory`."""

    directory: str
    columns: tuple[Column, ...]
    spark_schema: str
    splits: dict[str, Split]
    provenance: Provenance

    @property
    def statistics(self) -> PartitionStatistics:
        return PartitionStatistics(splits={name: split.statistics for name, split in self.splits.items()})


def whole(written: Written, name: str, number: int) -> DatasetManifest:
    """The dataset that is `written`, as its partition `name`, and nothing else."""
    return _manifest(written, number, written.splits, {name: _partition(written, number)})


def joined(dataset: str, base: DatasetManifest, name: str, written: Written) -> DatasetManifest:
    """`base`, the newest version of `dataset`, with `written` as its partition `name`.

    Raises TrainyardError when its columns are others.
    """
    _same_columns(dataset, base, name, written)
    number = base.number + 1
    others = {key: partition for key, partition in base.partitions.items() if key != name}
    partitions = dict(sorted((others | {name: _partition(written, number)}).items()))
    figures = _kept_figures(dataset, base, others)
    splits = {}
    for split in dict.fromkeys([*base.splits, *written.splits]):
        shards = _by_directory(base.splits.get(split)) | _by_directory(written.splits.get(split))
        placed = tuple(shard for p in partitions.values() for shard in shards.get(p.directory, ()))
        own = written.splits[split].statistics if split in written.splits else None
        found = _together(figures.get(split), own)
        if placed and found:
            splits[split] = Split(rows=sum(shard.rows for shard in placed), shards=placed, statistics=dict(found))
    return _manifest(written, number, splits, partitions)


def _manifest(
    written: Written, number: int, splits: dict[str, Split], partitions: dict[str, Partition]
) -> DatasetManifest:
    return DatasetManifest(
        number=number, columns=written.columns, splits=splits, partitions=partitions,
        spark_schema=written.spark_schema, provenance=written.provenance,
        content_hash=manifests.content_hash(written.columns, splits),
    )  # fmt: skip


def _partition(written: Written, number: int) -> Partition:
    rows = sum(split.rows for split in written.splits.values())
    return Partition(directory=written.directory, version=number, rows=rows, provenance=written.provenance)


def _kept_figures(dataset: str, base: DatasetManifest, others: Mapping[str, Partition]) -> dict[str, Figures]:
    """The statistics of the partitions that stay: of the whole, unless one of it goes."""
    if len(others) == len(base.partitions):
        return {name: split.statistics for name, split in base.splits.items()}
    found: dict[str, Figures] = {}
    for partition in others.values():
        part = PartitionStatistics.load(storage.join(dataset, partition.statistics))
        for split, figures in part.splits.items():
            found[split] = _together(found.get(split), figures) or {}
    return found


def _together(one: Figures | None, other: Figures | None) -> Figures | None:
    if one is None or other is None:
        return other if one is None else one
    return {column: merged(found, other[column]) for column, found in one.items()}


def _by_directory(split: Split | None) -> dict[str, list[Shard]]:
    found: dict[str, list[Shard]] = {}
    for shard in split.shards if split else ():
        found.setdefault(shard.path.rsplit("/", 1)[0], []).append(shard)
    return found


def _same_columns(dataset: str, base: DatasetManifest, name: str, written: Written) -> None:
    there = {column.name: column for column in base.columns}
    here = {column.name: column for column in written.columns}
    for column in dict.fromkeys([*there, *here]):
        if there.get(column) != here.get(column):
            raise TrainyardError(
                f"partition {name!r} cannot be added to {dataset}: column {column!r} is {_described(here.get(column))} "
                f"in it, and {_described(there.get(column))} in version {base.number} of the dataset. Let prepare "
                "return the same columns, or write the whole dataset anew, without a partition."
            )


def _described(column: Column | None) -> str:
    if column is None:
        return "absent"
    shape = f" {list(column.shape)}" if column.kind == "tensor" else ""
    return f"a {column.kind} of {column.type}{shape}"
