"""One split of a dataset, memory mapped: record batches as NumPy arrays without a copy."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas.manifest import Column, DatasetManifest, Shard
from trainyard.trainer.data.cache import ShardCache, altered, directory
from trainyard.trainer.data.jagged import Array, Jagged
from trainyard.trainer.data.order import LANES

OPEN_SHARDS = 256
OPEN_BLOCKS = 1024
READ_BLOCKS = 4 * LANES
FETCHERS = 4
CACHE_BYTES = 32 << 30
"""What a cache holds that nobody chose another limit for."""

Rows = Array | Jagged
Block = dict[str, Rows]


class SplitReader:
    """The record batches ("blocks") of one split, and the columns of them that were asked for.

    Shards on this machine are mapped as they lie; remote ones are mapped from `cache`, or, when it
    cannot hold the split, read block by block. A shard's size is compared with the manifest when it is
    opened, and its checksum too with `verify` (always when it comes into the cache). Raises
    TrainyardError naming a shard that differs.
    """

    def __init__(
        self,
        uri: str,
        manifest: DatasetManifest,
        split: str,
        columns: tuple[str, ...],
        verify: bool = True,
        cache: ShardCache | None = None,
    ) -> None:
        self.uri = uri
        self.name = split
        self.columns = tuple(_tensor_column(manifest, split, name) for name in columns)
        self.remote = storage.local_path(uri) is None
        self._shards = manifest.split(split).shards
        self._cache = cache or ShardCache(directory(), CACHE_BYTES)
        self._ranges = self.remote and sum(shard.bytes for shard in self._shards) > self._cache.limit
        self._verify = verify
        self._verified: set[str] = set()
        self._open: OrderedDict[str, tuple[pa.Buffer, pa.Schema]] = OrderedDict()
        self._coming: dict[str, Future[Path]] = {}
        self._ahead: OrderedDict[int, Future[bytes]] = OrderedDict()
        self.block = self._read_block if self._ranges else lru_cache(OPEN_BLOCKS)(self._mapped_block)
        self._where = [(shard, batch) for shard in self._shards for batch in shard.batches]
        self.blocks = tuple(batch.rows for _, batch in self._where)

    @cached_property
    def rows(self) -> int:
        return sum(self.blocks)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row in memory, over the columns asked for; where rows differ, of the mean row in a shard."""
        if any(column.kind == "list" or column.type == "binary" for column in self.columns):
            return max(1, sum(shard.bytes for shard in self._shards) // self.rows)
        return max(1, sum(dtype(column).itemsize * int(np.prod(column.shape)) for column in self.columns))

    def locate(self, block: int, row: int) -> str:
        """Where a row of a block lies, in words."""
        shard = self._where[block][0]
        before = next(number for number, (found, _) in enumerate(self._where) if found is shard)
        return f"row {(block - before) * shard.batch_rows + row} of shard {storage.join(self.uri, shard.path)}"

    def announce(self, blocks: Iterable[int]) -> None:
        """Remote `blocks` will be asked for soon: have what they lie in fetched meanwhile."""
        for number in blocks:
            shard = self._where[number][0]
            if self._ranges:
                self._reading(number)
            elif shard.path not in self._coming and shard.path not in self._open:
                self._coming[shard.path] = self._fetchers.submit(self._fetch, shard)

    @cached_property
    def _fetchers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(FETCHERS, thread_name_prefix="fetch")

    def _mapped_block(self, number: int) -> Block:
        """The columns of record batch `number`: read-only arrays (rows, *shape), or Jagged, over the memory map."""
        shard, where = self._where[number]
        buffer, schema = self._shard(shard)
        return self._arrays(pa.py_buffer(buffer)[where.offset : where.offset + where.length], schema)

    def _read_block(self, number: int) -> Block:
        """The columns of record batch `number`, read by itself."""
        return self._arrays(pa.py_buffer(self._reading(number).result()), self._schema)

    def _arrays(self, data: pa.Buffer, schema: pa.Schema) -> Block:
        batch = pa.ipc.read_record_batch(data, schema)
        return {column.name: _array(batch.column(column.name), column) for column in self.columns}

    def _reading(self, number: int) -> Future[bytes]:
        """The bytes of a record batch, coming or still here: the newest few are kept."""
        if number not in self._ahead:
            self._ahead[number] = self._fetchers.submit(self._range, number)
        self._ahead.move_to_end(number)
        if len(self._ahead) > READ_BLOCKS:
            self._ahead.popitem(last=False)
        return self._ahead[number]

    def _range(self, number: int) -> bytes:
        shard, where = self._where[number]
        uri = storage.join(self.uri, shard.path)
        try:
            return storage.read_range(uri, where.offset, where.length)
        except FileNotFoundError:
            raise _gone(uri) from None

    def _shard(self, shard: Shard) -> tuple[pa.Buffer, pa.Schema]:
        if shard.path in self._open:
            self._open.move_to_end(shard.path)
            return self._open[shard.path]
        coming = self._coming.pop(shard.path, None)
        try:
            buffer = _mapped(coming.result() if coming else self._fetch(shard))
        except FileNotFoundError:  # it made room for others meanwhile
            buffer = _mapped(self._fetch(shard))
        if not self.remote:
            self._check(shard, buffer)
        self._open[shard.path] = buffer, pa.ipc.open_file(buffer).schema
        if len(self._open) > OPEN_SHARDS:
            self._open.popitem(last=False)
        return self._open[shard.path]

    def _fetch(self, shard: Shard) -> Path:
        """The file of a shard on this machine, of the right size."""
        uri = storage.join(self.uri, shard.path)
        try:
            found = storage.size(uri)
        except FileNotFoundError:
            raise _gone(uri) from None
        if found != shard.bytes:
            raise TrainyardError(
                f"{uri} has {found} bytes, the manifest says {shard.bytes}: it was truncated or overwritten. "
                "Export the dataset again."
            )
        return storage.local_path(uri) or self._cache.fetch(uri, shard)

    @cached_property
    def _schema(self) -> pa.Schema:
        """Of all shards, from the head of the first: an Arrow file is a stream behind eight bytes of magic."""
        first = self._shards[0]
        head = storage.read_range(storage.join(self.uri, first.path), 0, first.begin)
        return pa.ipc.read_schema(pa.py_buffer(head)[8:])

    def _check(self, shard: Shard, buffer: pa.Buffer) -> None:
        if self._verify and shard.path not in self._verified:
            if hashlib.sha256(buffer).hexdigest() != shard.sha256:
                raise altered(storage.join(self.uri, shard.path))
            self._verified.add(shard.path)


def dtype(column: Column) -> np.dtype[np.generic]:
    """The NumPy type of a column's elements."""
    return np.dtype({"halffloat": "float16", "float": "float32", "double": "float64"}.get(column.type, column.type))


def _gone(uri: str) -> TrainyardError:
    return TrainyardError(f"{uri} is gone, but the manifest names it; export the dataset again.")


def _mapped(path: Path) -> pa.Buffer:
    return pa.memory_map(str(path)).read_buffer()


def _tensor_column(manifest: DatasetManifest, split: str, name: str) -> Column:
    column = manifest.column(name)
    try:
        if column.type != "binary":
            dtype(column)
    except TypeError:
        raise TrainyardError(
            f"column {name!r} is of type {column.type}, which is no tensor; encode it as numbers in prepare.py."
        ) from None
    if manifest.split(split).rows == 0:
        raise TrainyardError(f"split {split!r} has no rows.")
    return column


def _array(values: pa.Array, column: Column) -> Rows:
    if column.kind == "tensor":
        return values.to_numpy_ndarray()  # type: ignore[no-any-return]
    if column.kind == "list":
        offsets = values.offsets.to_numpy().astype(np.int64) // math.prod(column.shape)
        return Jagged(_flat(values.values, column).reshape(-1, *column.shape), offsets[:-1], np.diff(offsets))
    if column.type == "binary":
        return _bytes(values)
    return _flat(values, column)


def _bytes(values: pa.BinaryArray) -> Jagged:
    """As uint8; a null row is empty."""
    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, np.int32, len(values) + 1, 4 * values.offset).astype(np.int64)
    flat = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    return Jagged(flat, offsets[:-1], np.diff(offsets))


def _flat(values: pa.Array, column: Column) -> Array:
    return values.to_numpy(zero_copy_only=column.type != "bool")  # type: ignore[no-any-return]
