"""One shard: an Arrow IPC file that is hashed and indexed while it is written."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.etl.datasource import tensors
from trainyard.etl.datasource.columns import Field
from trainyard.schemas.manifest import Shard

ROLL_OVER = 512 << 20
_MAGIC = b"ARROW1\0\0"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class HashingFile:
    """A file for writing that keeps the sha256 and the length of what went through it."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.length = 0

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self._file.write(data)
        self.length += len(data)
        return len(data)

    def tell(self) -> int:
        return self.length

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._file.close()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


class ShardWriter:
    """Writes record batches to the shard `path` of `dataset`.

    Raises TrainyardError when the file system is full.
    """

    def __init__(self, dataset: str, path: str, fields: tuple[Field, ...]) -> None:
        self.path = path
        self._uri = storage.join(dataset, path)
        self._schema = pa.schema([field.arrow for field in fields])
        self._head = len(_MAGIC) + self._schema.serialize().size
        self._rows, self._batch_rows = 0, 0
        self._lengths: list[int] = []
        with self._room():
            self._file = HashingFile(storage.open_output(self._uri))
            self._ipc = pa.ipc.new_file(pa.PythonFile(self._file, "w"), self._schema)

    @property
    def bytes(self) -> int:
        return self._file.length

    def write(self, batch: pa.RecordBatch) -> None:
        """Append one record batch of plain storage columns; none but the last is smaller than the first."""
        columns = [
            tensors.to_tensor(array, field.type) if isinstance(field.type, pa.BaseExtensionType) else array
            for array, field in zip(batch.columns, self._schema, strict=True)
        ]
        offset = self.bytes or self._head
        with self._room():
            self._ipc.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._lengths.append(self.bytes - offset)
        self._rows += batch.num_rows
        self._batch_rows = max(self._batch_rows, batch.num_rows)

    def close(self) -> Shard:
        """Complete the file; what the manifest says of it."""
        with self._room():
            self._ipc.close()
            self._file.close()
        return Shard(
            path=self.path, rows=self._rows, bytes=self.bytes, sha256=self._file.sha256,
            begin=self._head, batch_rows=self._batch_rows, lengths=self._lengths,
        )  # fmt: skip

    def discard(self) -> None:
        """Give the file up and remove it, whatever state it is in."""
        try:
            self._file.close()
        except OSError:
            pass
        finally:
            storage.remove(self._uri)

    @contextmanager
    def _room(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in _FULL:
                raise
            written = getattr(getattr(self, "_file", None), "length", 0)
            raise TrainyardError(
                f"no space left on the device while writing {self._uri}, after {written:,} bytes of it. "
                "Free some space, or export to a place that has more; nothing of this export is kept."
            ) from error


class SplitWriter:
    """Writes the rows of one split in one task: cuts them to record batches, and these into shards."""

    def __init__(
        self, dataset: str, path: Callable[[int], str], fields: tuple[Field, ...], rows_per_batch: int
    ) -> None:
        self._dataset = dataset
        self._path = path
        self._fields = fields
        self._rows = rows_per_batch
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._open: ShardWriter | None = None
        self.shards: list[Shard] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in rows; whole record batches among them are written at once."""
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        if self._pending_rows < self._rows:
            return
        joined = self._pending[0] if len(self._pending) == 1 else pa.concat_batches(self._pending)
        whole = joined.num_rows - joined.num_rows % self._rows
        for start in range(0, whole, self._rows):
            self._write(joined.slice(start, self._rows))
        rest = joined.slice(whole)
        self._pending, self._pending_rows = ([rest] if rest.num_rows else []), rest.num_rows

    def close(self) -> list[Shard]:
        """Write what is left; all shards of this split, in order."""
        if self._pending:
            self._write(pa.concat_batches(self._pending))
        self._pending, self._pending_rows = [], 0
        self._finish()
        return self.shards

    def discard(self) -> None:
        """Remove all that was written."""
        if self._open:
            self._open.discard()
        for shard in self.shards:
            storage.remove(storage.join(self._dataset, shard.path))

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._open and self._open.bytes >= ROLL_OVER:
            self._finish()
        if not self._open:
            self._open = ShardWriter(self._dataset, self._path(len(self.shards)), self._fields)
        self._open.write(batch)

    def _finish(self) -> None:
        if self._open:
            self.shards.append(self._open.close())
            self._open = None


def check_size(dataset: str, shard: Shard, actual: int) -> None:
    """Refuse a shard that is not as long as the manifest says."""
    if actual != shard.bytes:
        raise TrainyardError(
            f"shard {shard.path} of {dataset} has {actual:,} bytes where its manifest says {shard.bytes:,}: "
            "it was truncated or altered. Restore it from a copy, or export again."
        )


def verify(dataset: str, shard: Shard) -> None:
    """Read the whole shard and refuse it unless length and sha256 are as the manifest says."""
    uri = storage.join(dataset, shard.path)
    try:
        length, sha256 = storage.checksum(uri)
    except FileNotFoundError:
        raise lost(dataset, shard) from None
    check_size(dataset, shard, length)
    if sha256 != shard.sha256:
        raise TrainyardError(
            f"shard {shard.path} of {dataset} was altered: its sha256 is {sha256} where its manifest "
            f"says {shard.sha256}. Restore it from a copy, or export again."
        )


def lost(dataset: str, shard: Shard) -> TrainyardError:
    """The error for a shard that is not there."""
    return TrainyardError(
        f"shard {shard.path} of {dataset} is missing: it was removed, or its version has expired. "
        "Load the dataset anew to read its current version, or export again."
    )
