"""The batch dataset: immutable Arrow shards, and the manifest that makes them a dataset.

    DATASET/manifest.json          the current version, replaced atomically
    DATASET/versions/00000001.json every version that was committed, created exactly once
    DATASET/shards/WRITE/*.arrow   Arrow IPC files, named by no one but a manifest

A version is committed by creating its file under `versions/`: of two writers one succeeds. The
manifest is then rolled forward to the newest version, by the winner or by whoever comes next.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar, Literal

from trainyard.contract import storage
from trainyard.contract.document import Document, Part
from trainyard.contract.errors import TrainyardError


class Column(Part):
    """One column. `type` is the Arrow name of its elements; `shape` that of one row's tensor.

    A scalar has shape (), a list column (variable length) has kind "list".
    """

    name: str
    kind: Literal["scalar", "tensor", "list"]
    type: str
    shape: tuple[int, ...] = ()


class Statistics(Part):
    """Figures of one column over one split.

    `mean`, `std` (population), `min` and `max` have one entry for a scalar or a list column's
    elements; for a tensor one an element, row-major, or one for each index of the first axis when
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


class RecordBatch(Part):
    """Where one record batch lies in its shard: byte offset, length in bytes, number of rows."""

    offset: int
    length: int
    rows: int


class Shard(Part):
    """One Arrow IPC file; `path` is relative to the dataset."""

    path: str
    rows: int
    bytes: int
    sha256: str
    batches: tuple[RecordBatch, ...]


class Split(Part):
    rows: int
    shards: tuple[Shard, ...]
    statistics: dict[str, Statistics]


class Provenance(Part):
    """Who wrote a dataset, from what: free text and figures that a dataset card shows."""

    application: str
    written_at: str
    source: str = ""
    prepare: str = ""
    code_hash: str = ""
    versions: dict[str, str] = {}


class BatchManifest(Document):
    """What a dataset holds. `content_hash` names its content: schema, splits and every row."""

    KIND: ClassVar[str] = "batch manifest"

    number: int
    columns: tuple[Column, ...]
    splits: dict[str, Split]
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


def content_hash(columns: tuple[Column, ...], splits: dict[str, Split]) -> str:
    """The sha256 that names a dataset: of its columns and, for each split, its shards in order."""
    text = json.dumps(
        [
            [column.model_dump(mode="json") for column in columns],
            [[name, [[shard.rows, shard.sha256] for shard in split.shards]] for name, split in splits.items()],
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()


def current(dataset: str) -> BatchManifest:
    """The manifest in force. A reader calls this once, and is not disturbed by later versions."""
    try:
        return BatchManifest.load(storage.join(dataset, "manifest.json"))
    except FileNotFoundError:
        raise TrainyardError(
            f"{dataset} is not a batch dataset: it has no manifest.json. "
            "Write it with ExportOperator, or with df.write.format('batches')."
        ) from None


def current_number(dataset: str) -> int:
    """The number of the newest committed version, 0 when there is none; finishes a cut-off commit."""
    _roll_forward(dataset)
    return _newest(dataset)


def commit(dataset: str, manifest: BatchManifest) -> None:
    """Make `manifest` the dataset's current version, unless another writer was first.

    Raises TrainyardError, naming the winner, when `manifest.number` was committed already.
    """
    try:
        storage.create(_version(dataset, manifest.number), manifest.to_json().encode())
    except FileExistsError:
        winner = BatchManifest.load(_version(dataset, manifest.number)).provenance
        raise TrainyardError(
            f"{dataset} was written by application {winner.application} at {winner.written_at} while "
            f"{manifest.provenance.application} was exporting to it; nothing of the latter is kept. "
            "Run it again to replace that version, or give each export a place of its own."
        ) from None
    _roll_forward(dataset)


def unreferenced(dataset: str) -> list[str]:
    """Directories and shards under `shards/` that the current manifest does not name.

    They belong to replaced versions and to writers that died, but also to writers at work.
    """
    kept = {shard.path for split in current(dataset).splits.values() for shard in split.shards}
    found = []
    for write in storage.names(storage.join(dataset, "shards")):
        paths = [f"shards/{write}/{name}" for name in storage.names(storage.join(dataset, "shards", write))]
        found += [f"shards/{write}"] if not kept.intersection(paths) else [p for p in paths if p not in kept]
    return found


def _version(dataset: str, number: int) -> str:
    return storage.join(dataset, "versions", f"{number:08d}.json")


def _newest(dataset: str) -> int:
    found = [name for name in storage.names(storage.join(dataset, "versions")) if not name.startswith(".")]
    return max((int(name.removesuffix(".json")) for name in found), default=0)


def _roll_forward(dataset: str) -> None:
    """Bring manifest.json to the newest version, also when a slower writer set it back meanwhile."""
    uri = storage.join(dataset, "manifest.json")
    while newest := _newest(dataset):
        shown: Any = BatchManifest.load(uri).number if storage.exists(uri) else 0
        if shown == newest:
            return
        storage.replace(uri, storage.read(_version(dataset, newest)))
