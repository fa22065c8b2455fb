"""Write and verify shards: Arrow IPC files that are hashed and indexed while they are written."""

from __future__ import annotations

import errno
import hashlib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa

from trainyard.errors import TrainyardError
from trainyard.etl.datasource import tensors
from trainyard.etl.datasource.columns import Field
from trainyard.etl.datasource.record_batches import concat_batches
from trainyard.files import storage, uris
from trainyard.schemas.datasets.manifest import Shard

MAX_SHARD_BYTES = 512 << 20
"""A split's next record batch starts a new shard once the current one is this large."""
MAX_BATCH_BYTES = 4 << 20
"""The approximate limit of a record batch. A shuffled reader keeps one of each of 64 parts of a split in memory."""
_MAGIC = b"ARROW1\0\0"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class HashingFile:
    """A file that computes the sha256 and the length of what is written to it.

    Attributes:
        length: The number of bytes written so far.
        crc32: The CRC-32 of the bytes from the offset on that was given to `start_crc32`.
    """

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.length = 0
        self.start_crc32(0)

    def start_crc32(self, offset: int) -> None:
        """Compute the CRC-32 of the bytes from `offset` on, which is not before the end."""
        self._crc32_begin, self.crc32 = offset, 0

    def write(self, data: bytes) -> int:
        """Write `data`; return its length in bytes."""
        self._hash.update(data)
        self._file.write(data)
        self.crc32 = zlib.crc32(memoryview(data)[max(self._crc32_begin - self.length, 0) :], self.crc32)
        self.length += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the position, which is the length so far."""
        return self.length

    def flush(self) -> None:
        """Flush the underlying file."""
        self._file.flush()

    def close(self) -> None:
        """Close the underlying file; a second call does nothing."""
        if not self.closed:
            self.closed = True
            self._file.close()

    @property
    def sha256(self) -> str:
        """The sha256 of all bytes written so far, in hexadecimal."""
        return self._hash.hexdigest()


class ShardWriter:
    """Write record batches to one shard.

    Args:
        dataset: The URI of the dataset.
        path: The path of the shard, relative to the dataset.
        fields: The columns; the shape of each must be known.

    Raises:
        TrainyardError: The file system is full. Each method may raise it.
    """

    def __init__(self, dataset: str, path: str, fields: tuple[Field, ...]) -> None:
        self.path = path
        self._uri = uris.join(dataset, path)
        self._schema = pa.schema([field.arrow for field in fields])
        self._begin = len(_MAGIC) + self._schema.serialize().size
        self._rows, self._batch_rows = 0, 0
        self._lengths: list[int] = []
        self._crc32s: list[int] = []
        with self._explain_full_disk():
            self._file = HashingFile(storage.open_output(self._uri))
            self._ipc = pa.ipc.new_file(pa.PythonFile(self._file, "w"), self._schema)

    @property
    def bytes(self) -> int:
        """The length of the file so far."""
        return self._file.length

    def write(self, batch: pa.RecordBatch) -> None:
        """Append one record batch of plain storage columns; only the last may have fewer rows than the first."""
        columns = [
            tensors.to_tensor(array, field.type) if isinstance(field.type, pa.BaseExtensionType) else array
            for array, field in zip(batch.columns, self._schema, strict=True)
        ]
        offset = self.bytes or self._begin
        self._file.start_crc32(offset)
        with self._explain_full_disk():
            self._ipc.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._crc32s.append(self._file.crc32)
        self._lengths.append(self.bytes - offset)
        self._rows += batch.num_rows
        self._batch_rows = max(self._batch_rows, batch.num_rows)

    def close(self) -> Shard:
        """Complete the file and return its entry in the manifest."""
        with self._explain_full_disk():
            self._ipc.close()
            self._file.close()
        return Shard(
            path=self.path, rows=self._rows, bytes=self.bytes, sha256=self._file.sha256,
            begin=self._begin, batch_rows=self._batch_rows, lengths=self._lengths, crc32s=self._crc32s,
        )  # fmt: skip

    def discard(self) -> None:
        """Close and remove the file, complete or not."""
        try:
            self._file.close()
        except OSError:
            pass
        finally:
            storage.remove(self._uri)

    @contextmanager
    def _explain_full_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            written = getattr(getattr(self, "_file", None), "length", 0)
            raise TrainyardError(
                f"no space left on the device while writing {self._uri}, after {written:,} bytes. "
                "Free some space, or export to a path with more; the files of this write are removed."
            ) from error


class SplitWriter:
    """Write one split's rows in one task: cut them into record batches, and these into shards.

    Args:
        dataset: The URI of the dataset.
        path: Returns the path of a shard, relative to the dataset, from its number.
        fields: The columns; the shape of each must be known.
        rows_per_batch: The number of rows in a record batch, if they have at most `MAX_BATCH_BYTES`; else fewer.
    """

    def __init__(
        self, dataset: str, path: Callable[[int], str], fields: tuple[Field, ...], rows_per_batch: int
    ) -> None:
        self._dataset = dataset
        self._path = path
        self._fields = fields
        self._rows_per_batch = rows_per_batch
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._open: ShardWriter | None = None
        self.shards: list[Shard] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, and write those that fill record batches."""
        if not (self.shards or self._open or self._pending):
            self._rows_per_batch = min(self._rows_per_batch, _count_rows(batch, MAX_BATCH_BYTES))
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        if self._pending_rows < self._rows_per_batch:
            return
        rows = self._pending[0] if len(self._pending) == 1 else concat_batches(self._pending)
        full = rows.num_rows - rows.num_rows % self._rows_per_batch
        for start in range(0, full, self._rows_per_batch):
            self._write(rows.slice(start, self._rows_per_batch))
        rest = rows.slice(full)
        self._pending, self._pending_rows = ([rest] if rest.num_rows else []), rest.num_rows

    def close(self) -> list[Shard]:
        """Write the remaining rows and return the shards of this split, in order."""
        if self._pending:
            self._write(concat_batches(self._pending))
        self._pending, self._pending_rows = [], 0
        self._close_shard()
        return self.shards

    def discard(self) -> None:
        """Remove all shards of this split."""
        if self._open:
            self._open.discard()
        for shard in self.shards:
            storage.remove(uris.join(self._dataset, shard.path))

    def _write(self, batch: pa.RecordBatch) -> None:
        if self._open and self._open.bytes >= MAX_SHARD_BYTES:
            self._close_shard()
        if not self._open:
            self._open = ShardWriter(self._dataset, self._path(len(self.shards)), self._fields)
        self._open.write(batch)

    def _close_shard(self) -> None:
        if self._open:
            self.shards.append(self._open.close())
            self._open = None


def check_size(dataset: str, shard: Shard, actual: int) -> None:
    """Check that a shard has the length in the manifest.

    Raises:
        TrainyardError: `actual`, in bytes, differs from it.
    """
    if actual != shard.bytes:
        raise TrainyardError(
            f"shard {shard.path} of {dataset} has {actual:,} bytes but {shard.bytes:,} in the manifest: "
            "it was truncated or altered. Restore it from a copy, or export again."
        )


def verify(dataset: str, shard: Shard) -> None:
    """Read a shard and compare its length and sha256 with the manifest.

    Raises:
        TrainyardError: The shard is missing, or one of them differs.
    """
    uri = uris.join(dataset, shard.path)
    try:
        length, sha256 = storage.checksum(uri)
    except FileNotFoundError:
        raise missing_shard_error(dataset, shard) from None
    check_size(dataset, shard, length)
    if sha256 != shard.sha256:
        raise TrainyardError(
            f"shard {shard.path} of {dataset} was altered: its sha256 is {sha256} but {shard.sha256} in the manifest. "
            "Restore it from a copy, or export again."
        )


def missing_shard_error(dataset: str, shard: Shard) -> TrainyardError:
    """Return the error for a shard that does not exist."""
    return TrainyardError(
        f"shard {shard.path} of {dataset} is missing: it was removed, or its version has expired. "
        "Load the dataset again to read its current version, or export again."
    )


def _count_rows(batch: pa.RecordBatch, limit: int) -> int:
    """Return how many rows like those of `batch` have `limit` bytes; at least one."""
    return max(limit * int(batch.num_rows) // max(int(batch.nbytes), 1), 1)
