"""The manifest of a dataset, and the commit protocol of its versions.

    DATASET/manifest.json          the current version, replaced atomically
    DATASET/versions/00000001.json every version that was committed, created exactly once
    DATASET/shards/WRITE/*.arrow   Arrow IPC files; only manifests refer to them
    DATASET/statistics/WRITE.json  the statistics of one write
    DATASET/fitted/SHA256.json     what was fitted on the training rows

A version is committed by creating its file under `versions/`: of two concurrent writers one succeeds. manifest.json is
then rolled forward to the newest version, by the winner or, after a crash, by the next reader or writer.

A dataset has partitions: a write adds one, or replaces the one of its name, and leaves the others unchanged. A write
without a name replaces the dataset by a single partition, "".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import NonNegativeInt, PlainSerializer, PlainValidator

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.schemas.datasets.fitted_state import FittedReference
from trainyard.schemas.document import Document, Part
from trainyard.schemas.types import ApplicationId, Digest, RelativePath, ShardDirectory, SplitName
from trainyard.schemas.version_suffix import split_version

MISSING_CLASS = -100
"""What a batch has in place of a null of a column of integers: the class that losses ignore."""
_VERSION = re.compile(r"(\d{8,})\.json")


class Column(Part):
    """One column."""

    name: str
    """The column's name."""
    kind: Literal["scalar", "tensor", "list"]
    """Its kind: "scalar"; "tensor", of one shape in all rows; or "list", of variable length."""
    type: str
    """The Arrow type of an element."""
    shape: tuple[int, ...] = ()
    """The shape of one row's tensor, or of one element of a list; () for a scalar."""
    nullable: bool = False
    """Whether a scalar of numbers may be null, as a label that a row does not have. A batch has NaN there, or, in a
    column of integers, -100."""


class Statistics(Part):
    """The statistics of one column over one split.

    `mean`, `std` (population), `min` and `max` have one entry for a scalar. For a tensor, or an element of a
    variable-length column, they have one entry for each of its elements in row-major order; one for each index of
    the first axis if it has more than 4096 elements; and one in all if that axis is longer, too. `values` counts each
    distinct value of a scalar that has at most 1000 of them.
    """

    count: int
    nulls: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    min: tuple[float, ...] = ()
    max: tuple[float, ...] = ()
    values: dict[str, int] | None = None


class RecordBatch(NamedTuple):
    """Where a record batch is in its shard (offset and length in bytes), its number of rows, and its CRC-32."""

    offset: int
    length: int
    rows: int
    crc32: int


class Shard(NamedTuple):
    """One Arrow IPC file; `path` is relative to the dataset.

    Its record batches are contiguous from byte `begin` on, and `lengths` bytes long; each has `batch_rows` rows, the
    last one the rest. `crc32s` are their checksums, with which a reader verifies what it reads of the shard.
    """

    path: str
    rows: int
    bytes: int
    sha256: str
    begin: int
    batch_rows: int
    lengths: list[int]
    crc32s: list[int]

    @property
    def batches(self) -> list[RecordBatch]:
        """The record batches, in order."""
        offsets = accumulate(self.lengths, initial=self.begin)
        remaining = range(self.rows, 0, -self.batch_rows)
        locations = zip(offsets, self.lengths, remaining, self.crc32s, strict=False)
        return [RecordBatch(offset, length, min(rows, self.batch_rows), crc) for offset, length, rows, crc in locations]


class _Columns(Part):
    """Shards as they are stored, a list for each field: a tenth of the time and a quarter of the size of objects."""

    path: list[RelativePath]
    rows: list[NonNegativeInt]
    bytes: list[NonNegativeInt]
    sha256: list[Digest]
    begin: list[int]
    batch_rows: list[int]
    lengths: list[list[int]]
    crc32s: list[list[int]]


def _from_columns(value: Any) -> tuple[Shard, ...]:
    if isinstance(value, tuple) and all(isinstance(shard, Shard) for shard in value):
        return value
    columns = _Columns.model_validate(value)
    return tuple(Shard(*fields) for fields in zip(*(getattr(columns, name) for name in Shard._fields), strict=True))


def _to_columns(shards: tuple[Shard, ...]) -> dict[str, Any]:
    return {name: [shard[number] for shard in shards] for number, name in enumerate(Shard._fields)}


class Split(Part):
    """The shards, rows and statistics of one split."""

    rows: int
    shards: Annotated[tuple[Shard, ...], PlainValidator(_from_columns), PlainSerializer(_to_columns)]
    statistics: dict[str, Statistics]


class Provenance(Part):
    """What wrote a dataset, and from what.

    `fingerprint` is a hash of source files, tables, code and options: equal fingerprints give equal datasets. `model`
    is the sha256 of the weights whose features or predictions the rows have. `source_versions` has the version of each
    source that has versions, by its name. `warnings` name what is not as expected, columns that have drifted, splits
    without rows, and partitions with features of other weights.
    """

    application: ApplicationId
    written_at: str
    source: str = ""
    source_versions: dict[str, str] = {}
    prepare: str = ""
    code_hash: str = ""
    fingerprint: str = ""
    model: str = ""
    versions: dict[str, str] = {}
    warnings: tuple[str, ...] = ()


class Partition(Part):
    """The result of one write: the shards below `directory`, in the dataset since version `version`."""

    directory: ShardDirectory
    version: int
    rows: int
    provenance: Provenance

    @property
    def statistics(self) -> str:
        """The path of the PartitionStatistics, relative to the dataset."""
        return f"statistics/{self.directory.rsplit('/', 1)[-1]}.json"


class PartitionStatistics(Document):
    """The statistics of one partition: split -> column -> statistics."""

    KIND: ClassVar[str] = "partition statistics"
    MAX_BYTES: ClassVar[int] = 256 << 20

    splits: dict[str, dict[str, Statistics]]


class DatasetManifest(Document):
    """The content of one version of a dataset."""

    KIND: ClassVar[str] = "dataset manifest"
    MAX_BYTES: ClassVar[int] = 256 << 20
    INDENT: ClassVar[int | None] = None

    number: int
    """The version."""
    columns: tuple[Column, ...]
    """The columns."""
    splits: dict[SplitName, Split]
    """The splits by name. Shards are in the order of their partitions' names."""
    partitions: dict[str, Partition]
    """The partitions by name."""
    spark_schema: str
    """The schema of the DataFrame that was written, as Spark's JSON."""
    provenance: Provenance
    """The provenance of the newest write."""
    content_hash: Digest
    """The sha256 of schema, splits and rows, and of what was fitted."""
    fitted: FittedReference | None = None
    """What was fitted on the training rows, and is applied to all rows."""

    def column(self, name: str) -> Column:
        """Return a column. Raises TrainyardError if there is none of this name."""
        return self.select((name,))[0]

    def select(self, names: Iterable[str]) -> tuple[Column, ...]:
        """Return the columns of these names. Raises TrainyardError if one is missing."""
        columns = {column.name: column for column in self.columns}
        selected = []
        for name in names:
            if name not in columns:
                raise TrainyardError(f"the dataset has no column {name!r}; it has {', '.join(columns)}.")
            selected.append(columns[name])
        return tuple(selected)

    def split(self, name: str) -> Split:
        """Return a split. Raises TrainyardError if there is none of this name."""
        if name not in self.splits:
            raise TrainyardError(f"the dataset has no split {name!r}; it has {', '.join(self.splits)}.")
        return self.splits[name]

    @property
    def rows(self) -> int:
        """The number of rows in all splits."""
        return sum(split.rows for split in self.splits.values())

    def list_added(self, number: int) -> dict[str, Partition]:
        """Return the partitions that were added after version `number`, by name."""
        return {name: partition for name, partition in self.partitions.items() if partition.version > number}

    def since(self, number: int) -> DatasetManifest:
        """Return the part that was added after version `number`, with the statistics of the whole dataset.

        Raises:
            TrainyardError: Nothing was added after that version.
        """
        newer = self.list_added(number)
        if not newer:
            raise TrainyardError(f"version {self.number} of the dataset adds nothing to version {number}.")
        directories = {partition.directory for partition in newer.values()}
        splits = {}
        for name, split in self.splits.items():
            shards = tuple(shard for shard in split.shards if shard.path.rsplit("/", 1)[0] in directories)
            if shards:
                rows = sum(shard.rows for shard in shards)
                splits[name] = split.model_copy(update={"shards": shards, "rows": rows})
        hashed = content_hash(self.columns, splits, self.fitted)
        return self.model_copy(update={"splits": splits, "partitions": newer, "content_hash": hashed})


def fold_name(number: int) -> str:
    """Return the name of the split of a fold, counted from 1."""
    return f"fold-{number}"


def content_hash(columns: tuple[Column, ...], splits: dict[str, Split], fitted: FittedReference | None = None) -> str:
    """Return the sha256 of columns and, for each split, of its shards in order; and of what was fitted."""
    content: list[Any] = [
        [column.model_dump(mode="json", exclude=None if column.nullable else {"nullable"}) for column in columns],
        [[name, [[shard.rows, shard.sha256] for shard in split.shards]] for name, split in splits.items()],
    ]
    content += [fitted.sha256] if fitted else []
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def read_current(dataset: str) -> DatasetManifest:
    """Read the current manifest. Later versions do not change what a reader of this one sees."""
    try:
        return DatasetManifest.load(uris.join(dataset, "manifest.json"))
    except FileNotFoundError:
        raise TrainyardError(
            f"{dataset} is not a dataset: it has no manifest.json. "
            "Write it with ExportOperator, or with df.write.format('trainyard')."
        ) from None


def read_version(dataset: str, version: int | None = None, since: int | None = None) -> DatasetManifest:
    """Read the manifest of a version.

    Args:
        dataset: The URI of the dataset.
        version: The version, by default the current one.
        since: Return only what was added after this version.

    Raises:
        TrainyardError: There is no such version.
    """
    if version is None:
        manifest = read_current(dataset)
    else:
        try:
            manifest = DatasetManifest.load(_version(dataset, version))
        except FileNotFoundError:
            existing = list_versions(dataset)
            versions = f"{existing[0]} to {existing[-1]}" if existing else "none"
            raise TrainyardError(f"{dataset} has no version {version}; it has versions {versions}.") from None
    return manifest if since is None else manifest.since(since)


def find(name: str) -> tuple[str, DatasetManifest]:
    """Return the URI of a dataset and its current manifest, or that of the version which `name` ends with.

    Args:
        name: The URI of the dataset; `DATASET@12` is its version 12.

    Raises:
        TrainyardError: There is no such dataset or version.
    """
    dataset, version = split_version(name)
    if version is not None and not version.isdecimal():
        raise TrainyardError(f"{name}: the version of a dataset is a number, as in {dataset}@12.")
    return dataset, read_version(dataset, None if version is None else int(version))


def list_versions(dataset: str) -> list[int]:
    """Return the numbers of the versions, oldest first."""
    names = storage.list_names(uris.join(dataset, "versions"))
    return sorted(int(match[1]) for match in map(_VERSION.fullmatch, names) if match)


def read_latest(dataset: str) -> DatasetManifest | None:
    """Read the newest committed version, None if there is none. Completes a commit that was interrupted."""
    _roll_forward(dataset)
    versions = list_versions(dataset)
    return DatasetManifest.load(_version(dataset, versions[-1])) if versions else None


def commit(dataset: str, manifest: DatasetManifest) -> None:
    """Commit `manifest` as the dataset's current version.

    Raises:
        FileExistsError: Another writer has committed version `manifest.number`.
    """
    if list_versions(dataset)[-1:] >= [manifest.number]:  # it may have expired since
        raise FileExistsError(_version(dataset, manifest.number))
    storage.create(_version(dataset, manifest.number), manifest.to_json().encode())
    _roll_forward(dataset)


def remove_version(dataset: str, number: int) -> None:
    """Remove a version. Its shards stay."""
    storage.remove(_version(dataset, number))


def _version(dataset: str, number: int) -> str:
    return uris.join(dataset, "versions", f"{number:08d}.json")


def _roll_forward(dataset: str) -> None:
    """Set manifest.json to the newest version, also after a slower writer has set it back."""
    uri = uris.join(dataset, "manifest.json")
    while versions := list_versions(dataset):
        current = DatasetManifest.load(uri).number if storage.exists(uri) else 0
        if current == versions[-1]:
            return
        storage.replace(uri, storage.read(_version(dataset, versions[-1])))
