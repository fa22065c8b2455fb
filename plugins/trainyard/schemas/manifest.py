"""The dataset: immutable Arrow shards, and the manifest that makes them a dataset.

    DATASET/manifest.json          the current version, replaced atomically
    DATASET/versions/00000001.json every version that was committed, created exactly once
    DATASET/shards/WRITE/*.arrow   Arrow IPC files, named by no one but a manifest
    DATASET/statistics/WRITE.json  what one write alone adds to the statistics

A version is committed by creating its file under `versions/`: of two writers one succeeds. The
manifest is then rolled forward to the newest version, by the winner or by whoever comes next.

A dataset has partitions: a write adds one, or replaces the one of its name, and leaves the others as they lie. What is
written without a name is the dataset's only partition, "".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import PlainSerializer, PlainValidator

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas.document import Document, Part


class Column(Part):
    """One column. `type` is the Arrow name of its elements; `shape` that of one row's tensor.

    A scalar has shape (); a list column (variable length) has kind "list", and the shape of one element.
    """

    name: str
    kind: Literal["scalar", "tensor", "list"]
    type: str
    shape: tuple[int, ...] = ()


class Statistics(Part):
    """Figures of one column over one split.

    `mean`, `std` (population), `min` and `max` have one entry for a scalar; for a tensor (or one element of a list
    column) one an element, row-major, or one for each index of the first axis when
    the tensor has more than 4096 elements. `values` counts each distinct value of a scalar that
    has at most 1000 of them.
    """

    count: int
    nulls: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    min: tuple[float, ...] = ()
    max: tuple[float, ...] = ()
    values: dict[str, int] | None = None


class RecordBatch(NamedTuple):
    """Where one record batch lies in its shard: byte offset, length in bytes, number of rows."""

    offset: int
    length: int
    rows: int


class Shard(NamedTuple):
    """One Arrow IPC file; `path` is relative to the dataset.

    Its record batches lie end to end from byte `begin` on, and are `lengths` bytes long; each has `batch_rows` rows,
    the last what is left.
    """

    path: str
    rows: int
    bytes: int
    sha256: str
    begin: int
    batch_rows: int
    lengths: list[int]

    @property
    def batches(self) -> list[RecordBatch]:
        offsets = accumulate(self.lengths, initial=self.begin)
        left = range(self.rows, 0, -self.batch_rows)
        found = zip(offsets, self.lengths, left, strict=False)
        return [RecordBatch(offset, length, min(rows, self.batch_rows)) for offset, length, rows in found]


class _Columns(Part):
    """Shards as a document has them: a list for each field, which is a tenth of the time and a quarter of the size."""

    path: list[str]
    rows: list[int]
    bytes: list[int]
    sha256: list[str]
    begin: list[int]
    batch_rows: list[int]
    lengths: list[list[int]]


def _from_columns(value: Any) -> tuple[Shard, ...]:
    if not isinstance(value, Mapping):
        return tuple(value)
    columns = _Columns.model_validate(value)
    return tuple(Shard(*fields) for fields in zip(*(getattr(columns, name) for name in Shard._fields), strict=True))


def _to_columns(shards: tuple[Shard, ...]) -> dict[str, Any]:
    return {name: [shard[number] for shard in shards] for number, name in enumerate(Shard._fields)}


class Split(Part):
    rows: int
    shards: Annotated[tuple[Shard, ...], PlainValidator(_from_columns), PlainSerializer(_to_columns)]
    statistics: dict[str, Statistics]


class Provenance(Part):
    """Who wrote a dataset, from what: free text and figures that a dataset card shows.

    `fingerprint` names source files, code and options: where it is the same, so is what is written. `warnings` tell of
    columns that have drifted.
    """

    application: str
    written_at: str
    source: str = ""
    prepare: str = ""
    code_hash: str = ""
    fingerprint: str = ""
    versions: dict[str, str] = {}
    warnings: tuple[str, ...] = ()


class Partition(Part):
    """What one write made: the shards below `directory`, in the dataset since its version `version`."""

    directory: str
    version: int
    rows: int
    provenance: Provenance

    @property
    def statistics(self) -> str:
        """Where the PartitionStatistics lie, relative to the dataset."""
        return f"statistics/{self.directory.rsplit('/', 1)[-1]}.json"


class PartitionStatistics(Document):
    """The statistics of one partition: of each split that it has rows of, column by column."""

    KIND: ClassVar[str] = "partition statistics"

    splits: dict[str, dict[str, Statistics]]


class DatasetManifest(Document):
    """What a dataset holds. `content_hash` names its content: schema, splits and every row.

    `provenance` is of the newest write. Shards lie in the order of their partitions' names.
    """

    KIND: ClassVar[str] = "dataset manifest"
    INDENT: ClassVar[int | None] = None

    number: int
    columns: tuple[Column, ...]
    splits: dict[str, Split]
    partitions: dict[str, Partition]
    spark_schema: str
    provenance: Provenance
    content_hash: str

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise TrainyardError(f"the dataset has no column {name!r}; it has {', '.join(c.name for c in self.columns)}.")

    def split(self, name: str) -> Split:
        if name not in self.splits:
            raise TrainyardError(f"the dataset has no split {name!r}; it has {', '.join(self.splits)}.")
        return self.splits[name]

    @property
    def rows(self) -> int:
        return sum(split.rows for split in self.splits.values())

    def since(self, number: int) -> DatasetManifest:
        """The part of the dataset that came after version `number`. Statistics stay those of the whole.

        Raises TrainyardError when there is none.
        """
        newer = {name: partition for name, partition in self.partitions.items() if partition.version > number}
        if not newer:
            raise TrainyardError(f"version {self.number} of the dataset has nothing that came after version {number}.")
        directories = {partition.directory for partition in newer.values()}
        splits = {}
        for name, split in self.splits.items():
            shards = tuple(shard for shard in split.shards if shard.path.rsplit("/", 1)[0] in directories)
            if shards:
                rows = sum(shard.rows for shard in shards)
                splits[name] = split.model_copy(update={"shards": shards, "rows": rows})
        hashed = content_hash(self.columns, splits)
        return self.model_copy(update={"splits": splits, "partitions": newer, "content_hash": hashed})

    def summary(self, uri: str) -> dict[str, Any]:
        """The dataset at `uri` in figures, as an XCom carries them."""
        shards = [shard for split in self.splits.values() for shard in split.shards]
        return {
            "uri": uri,
            "content_hash": self.content_hash,
            "version": self.number,
            "rows": self.rows,
            "splits": {name: split.rows for name, split in self.splits.items()},
            "partitions": len(self.partitions),
            "shards": len(shards),
            "record_batches": sum(len(shard.lengths) for shard in shards),
            "bytes": sum(shard.bytes for shard in shards),
            "warnings": list(self.provenance.warnings),
        }


def content_hash(columns: tuple[Column, ...], splits: dict[str, Split]) -> str:
    """The sha256 that names a dataset: of its columns and, for each split, its shards in order."""
    text = json.dumps(
        [
            [column.model_dump(mode="json") for column in columns],
            [[name, [[shard.rows, shard.sha256] for shard in split.shards]] for name, split in splits.items()],
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()


def read_current(dataset: str) -> DatasetManifest:
    """The manifest in force. A reader calls this once, and is not disturbed by later versions."""
    try:
        return DatasetManifest.load(storage.join(dataset, "manifest.json"))
    except FileNotFoundError:
        raise TrainyardError(
            f"{dataset} is not a dataset: it has no manifest.json. "
            "Write it with ExportOperator, or with df.write.format('trainyard')."
        ) from None


def read_version(dataset: str, version: int | None = None, since: int | None = None) -> DatasetManifest:
    """The manifest of a version, by default of the one in force; with `since` of what came after that version.

    Raises TrainyardError that names the versions there are.
    """
    if version is None:
        found = read_current(dataset)
    else:
        try:
            found = DatasetManifest.load(_version(dataset, version))
        except FileNotFoundError:
            there = list_versions(dataset)
            kept = f"versions {there[0]} to {there[-1]}" if there else "none"
            raise TrainyardError(f"{dataset} has no version {version}; kept are {kept}.") from None
    return found if since is None else found.since(since)


def list_versions(dataset: str) -> list[int]:
    """The versions that are kept, oldest first."""
    found = storage.list_names(storage.join(dataset, "versions"))
    return sorted(int(name.removesuffix(".json")) for name in found if not name.startswith("."))


def read_latest(dataset: str) -> DatasetManifest | None:
    """The newest committed version, None when there is none; finishes a cut-off commit."""
    _roll_forward(dataset)
    found = list_versions(dataset)
    return DatasetManifest.load(_version(dataset, found[-1])) if found else None


def commit(dataset: str, manifest: DatasetManifest) -> None:
    """Make `manifest` the dataset's current version.

    Raises FileExistsError when another writer was first: `manifest.number` was committed already.
    """
    if list_versions(dataset)[-1:] >= [manifest.number]:  # perhaps expired since
        raise FileExistsError(_version(dataset, manifest.number))
    storage.create(_version(dataset, manifest.number), manifest.to_json().encode())
    _roll_forward(dataset)


def remove_version(dataset: str, number: int) -> None:
    """Remove a version from the list; its shards stay."""
    storage.remove(_version(dataset, number))


def _version(dataset: str, number: int) -> str:
    return storage.join(dataset, "versions", f"{number:08d}.json")


def _roll_forward(dataset: str) -> None:
    """Bring manifest.json to the newest version, also when a slower writer set it back meanwhile."""
    uri = storage.join(dataset, "manifest.json")
    while found := list_versions(dataset):
        shown: Any = DatasetManifest.load(uri).number if storage.exists(uri) else 0
        if shown == found[-1]:
            return
        storage.replace(uri, storage.read(_version(dataset, found[-1])))
