"""Read one split of a dataset: its record batches as NumPy arrays over the memory map, without a copy."""

from __future__ import annotations

import math
import mmap
import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.types import is_binary, is_nested

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.files.retries import retry
from trainyard.schemas.datasets.manifest import MISSING_CLASS, Column, DatasetManifest, RecordBatch, Shard
from trainyard.trainer.data.reading.arrow_files import altered_if_invalid, check_index, check_schema, read_batch
from trainyard.trainer.data.reading.cache import FOLDER, CacheFullError, ShardCache, checksum_error
from trainyard.trainer.data.reading.jagged import Array, Jagged
from trainyard.trainer.folders import name_folder

MAX_DESCRIBED = 4
"""The values by which an error names a row."""
MAX_VALUE_LENGTH = 80
OPEN_SHARDS = 256
OPEN_BLOCKS = 128
"""Blocks of each open shard whose arrays are kept: more than a worker reads by turns in most datasets."""
FETCHERS = 4
CACHE_BYTES = 32 << 30
"""The default limit of the shard cache."""

Rows = Array | Jagged
Names = tuple[str, ...]


class Block(Mapping[str, Rows]):
    """The rows of each column of a record batch, over its memory.

    Args:
        batch: The record batch.
        data: Its memory.
        columns: The columns, by name.
        groups: The names of columns whose rows are selected together, from `group_columns`.
    """

    def __init__(
        self, batch: pa.RecordBatch, data: pa.Buffer, columns: Mapping[str, Column], groups: Iterable[Names]
    ) -> None:
        self._batch, self._columns = batch, columns
        self._arrays: dict[str, Rows] = {}
        self._views: dict[Names, Array] = {}
        for names in groups:
            arrays = [batch.column(name) for name in names]
            if len(names) == 1:
                self._arrays[names[0]] = _to_rows(arrays[0], columns[names[0]])
            elif (view := _view_together(arrays, data)) is not None:
                self._views[names] = view

    def __getitem__(self, name: str) -> Rows:
        if name not in self._arrays:  # of a group, whose columns are seldom read one by one
            self._arrays[name] = _to_rows(self._batch.column(name), self._columns[name])
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def describe_row(self, row: int) -> Iterator[str]:
        """Yield name and value of the numbers and texts in a row, also those of columns that are not requested."""
        for name, values in zip(self._batch.schema.names, self._batch.columns, strict=True):
            if not (isinstance(values, pa.ExtensionArray) or is_nested(values.type) or is_binary(values.type)):
                value = values[row : row + 1]
                value.validate(full=True)
                yield f"{name}={value[0].as_py()!r:.{MAX_VALUE_LENGTH}}"

    def select(self, names: Names, rows: slice | NDArray[np.int64]) -> Rows:
        """Return rows of a column, or of a group of several columns, as an array (columns, rows)."""
        if len(names) == 1:
            return self._arrays[names[0]][rows]
        if names in self._views:
            return self._views[names][:, rows]
        arrays: list[Any] = [self[name][rows] for name in names]
        return np.stack(arrays)


class _OpenShard(NamedTuple):
    """The map of a shard's file, and the function that returns its blocks."""

    map: mmap.mmap
    read: Callable[[int], Block]


class SplitReader:
    """The record batches ("blocks") of some columns of one split.

    Local shards are memory-mapped. Remote shards are mapped from the cache, or, where the split is larger than the
    cache, read block by block. The size of a shard is compared with the manifest when it is opened, and the checksum of
    a block when it is first read, so that the time to the first batch does not depend on the size of the split.

    Args:
        uri: The dataset.
        manifest: The version of the dataset to read.
        split: The name of the split.
        columns: The names of the columns.
        verify: Whether to verify the checksums of blocks.
        cache: The cache for remote shards.

    Attributes:
        uri: The dataset.
        name: The name of the split.
        columns: The columns.
        remote: Whether the shards are on another machine.
        fetched_bytes: The size of the blocks in memory that were fetched by themselves, in bytes.
        blocks: The number of rows of each block.

    Raises:
        TrainyardError: A column cannot be read as a tensor, the split is empty, or a shard differs from the manifest.
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
        self.columns = manifest.select(columns)
        _check_tensors(manifest, split, self.columns)
        self._columns_by_name = {column.name: column for column in self.columns}
        self._groups = group_columns(self.columns)
        self.remote = storage.local_path(uri) is None
        self._shards = manifest.split(split).shards
        self._cache = cache or ShardCache(name_folder(FOLDER), CACHE_BYTES)
        self._reads_ranges = self.remote and sum(shard.bytes for shard in self._shards) > self._cache.limit
        self._verify = verify
        self._verified: set[int] = set()
        self._open: OrderedDict[str, _OpenShard] = OrderedDict()
        self._schemas: dict[str, pa.Schema] = {}
        self._downloads: dict[str, Future[Path]] = {}
        self._reads: dict[int, Future[Block]] = {}
        self._in_memory: set[int] = set()
        self.fetched_bytes = 0
        self._process = os.getpid()
        for shard in self._shards:
            check_index(uris.join(uri, shard.path), shard)
        self._batches = [(shard, batch) for shard in self._shards for batch in shard.batches]
        self.blocks = tuple(batch.rows for _, batch in self._batches)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process reads with: nothing that this one has open, or fetches."""
        kept = {name: value for name, value in vars(self).items() if name != "_fetchers"}
        own = {"_open": OrderedDict(), "_downloads": {}, "_reads": {}, "_in_memory": set(), "fetched_bytes": 0}
        return kept | own

    @cached_property
    def rows(self) -> int:
        """The number of rows of the split."""
        return sum(self.blocks)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row in memory, over the columns; for variable-length rows those of the mean row in a shard."""
        if any(column.kind == "list" or column.type == "binary" for column in self.columns):
            return max(1, sum(shard.bytes for shard in self._shards) // self.rows)
        return max(1, sum(dtype(column).itemsize * int(np.prod(column.shape)) for column in self.columns))

    def block(self, number: int) -> Block:
        """Return the columns of a block: read-only arrays (rows, *shape), or Jagged.

        When the cache has no room for a shard, because others use all of it, this and all further blocks are read by
        themselves.
        """
        self._check_process()
        if not self._reads_ranges:
            try:
                return self._open_shard(self._batches[number][0]).read(number)
            except CacheFullError as error:
                print(f"split {self.name!r} is read block by block: {error}", flush=True)
                self._reads_ranges = True
                self._open.clear()
        fetched = self._reads.get(number)
        return fetched.result() if fetched else self._fetch_block(number)

    def locate(self, block: int, row: int) -> str:
        """Return the position of a row of a block in words: its number, the URI of its shard, and what identifies it.

        These are its first numbers and texts, among which a key may be.
        """
        shard = self._batches[block][0]
        first = next(number for number, (other, _) in enumerate(self._batches) if other is shard)
        uri = uris.join(self.uri, shard.path)
        with altered_if_invalid(uri):
            values = ", ".join(islice(self.block(block).describe_row(row), MAX_DESCRIBED))
        position = f"row {(block - first) * shard.batch_rows + row} of shard {uri}"
        return f"{position} ({values})" if values else position

    def prefetch(self, blocks: Iterable[int]) -> None:
        """Start to read `blocks`, which will be needed soon; those read by themselves stay until `release`."""
        self._check_process()
        for number in blocks:
            shard, batch = self._batches[number]
            if self._reads_ranges and number not in self._reads:
                self._reads[number] = self._fetchers.submit(self._fetch_block, number)
                self.fetched_bytes += batch.length
            elif self.remote and not self._reads_ranges and self._is_new(shard):
                self._downloads[shard.path] = self._fetchers.submit(self._fetch, shard)
            self._read_into_memory(number)

    def release(self, blocks: Iterable[int]) -> None:
        """Drop fetched `blocks` from memory."""
        self._in_memory.difference_update(blocks := set(blocks))
        for number in blocks:
            if self._reads.pop(number, None):
                self.fetched_bytes -= self._batches[number][1].length

    def _is_new(self, shard: Shard) -> bool:
        return shard.path not in self._downloads and shard.path not in self._open

    def _read_into_memory(self, number: int) -> None:
        """Let the system read a block of a mapped shard in the background, once until it is released.

        Otherwise the worker waits for some pages at a time when it reads a block that is not in memory.
        """
        shard, batch = self._batches[number]
        if number not in self._in_memory and (opened := self._open.get(shard.path)):
            self._in_memory.add(number)
            begin = batch.offset - batch.offset % mmap.PAGESIZE
            opened.map.madvise(mmap.MADV_WILLNEED, begin, batch.offset + batch.length - begin)

    @cached_property
    def _fetchers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(FETCHERS, thread_name_prefix="fetch")

    def _check_process(self) -> None:
        """Drop what threads of the parent fetch, in a process that was forked since: it has none of these threads."""
        if self._process != os.getpid():
            self._process = os.getpid()
            self.__dict__.pop("_fetchers", None)
            self._downloads, self._reads, self.fetched_bytes = {}, {}, 0

    def _slice_block(self, buffer: pa.Buffer, schema: pa.Schema, number: int) -> Block:
        """Return the columns of a block, over the memory map of its shard."""
        shard, batch = self._batches[number]
        data = buffer[batch.offset : batch.offset + batch.length]
        if number not in self._verified:
            self._check(shard, batch, data)
            self._verified.add(number)
        return self._to_arrays(data, schema, number)

    def _fetch_block(self, number: int) -> Block:
        """Return the columns of a block, which is read by itself."""
        data = pa.py_buffer(self._read_range(number))
        return self._to_arrays(data, self._get_schema(self._batches[number][0]), number)

    def _to_arrays(self, data: pa.Buffer, schema: pa.Schema, number: int) -> Block:
        shard, batch = self._batches[number]
        with altered_if_invalid(uris.join(self.uri, shard.path)):
            return Block(read_batch(data, schema, batch.rows), data, self._columns_by_name, self._groups)

    def _read_range(self, number: int) -> bytes:
        shard, batch = self._batches[number]
        uri = uris.join(self.uri, shard.path)
        try:
            data = retry(f"read {uri}", lambda: storage.read_range(uri, batch.offset, batch.length))
        except FileNotFoundError:
            raise _missing_shard_error(uri) from None
        except storage.ShortReadError as error:
            raise TrainyardError(f"{error}: it was truncated or overwritten. Export the dataset again.") from error
        self._check(shard, batch, data)
        return data

    def _open_shard(self, shard: Shard) -> _OpenShard:
        if opened := self._open.get(shard.path):
            with suppress(KeyError):  # dropped by another thread
                self._open.move_to_end(shard.path)
            return opened
        content = self._map_shard(shard)
        buffer = pa.py_buffer(content)
        with altered_if_invalid(uris.join(self.uri, shard.path)):
            schema = check_schema(pa.ipc.open_file(buffer).schema, self.columns)
        read = lru_cache(OPEN_BLOCKS)(partial(self._slice_block, buffer, schema))
        opened = self._open[shard.path] = _OpenShard(content, read)
        if len(self._open) > OPEN_SHARDS:
            self._open.popitem(last=False)
        return opened

    def _map_shard(self, shard: Shard) -> mmap.mmap:
        download = self._downloads.pop(shard.path, None)
        path = download.result() if download else self._fetch(shard)
        if self.remote:
            return self._cache.map(uris.join(self.uri, shard.path), shard)
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def _fetch(self, shard: Shard) -> Path:
        """Return the local file of a shard, whose size was checked."""
        uri = uris.join(self.uri, shard.path)
        try:
            size = retry(f"read {uri}", lambda: storage.size(uri))
        except FileNotFoundError:
            raise _missing_shard_error(uri) from None
        if size != shard.bytes:
            raise TrainyardError(
                f"{uri} has {size} bytes, the manifest says {shard.bytes}: it was truncated or overwritten. "
                "Export the dataset again."
            )
        return storage.local_path(uri) or self._cache.fetch(uri, shard)

    def _get_schema(self, shard: Shard) -> pa.Schema:
        """Return the schema of a shard, which those of one write share, and read it from the first that is asked for.

        An Arrow file is a stream behind an 8-byte magic.
        """
        directory = shard.path.rpartition("/")[0]
        if directory not in self._schemas:
            uri = uris.join(self.uri, shard.path)
            head = retry(f"read {uri}", lambda: storage.read_range(uri, 0, shard.begin))
            with altered_if_invalid(uri):
                self._schemas[directory] = check_schema(pa.ipc.read_schema(pa.py_buffer(head)[8:]), self.columns)
        return self._schemas[directory]

    def _check(self, shard: Shard, batch: RecordBatch, data: pa.Buffer | bytes) -> None:
        if self._verify and zlib.crc32(data) != batch.crc32:
            raise checksum_error(uris.join(self.uri, shard.path), batch)


def dtype(column: Column) -> np.dtype[np.generic]:
    """Return the NumPy type of a column's elements."""
    return np.dtype({"halffloat": "float16", "float": "float32", "double": "float64"}.get(column.type, column.type))


def get_missing(column: Column) -> float:
    """Return what a batch has in place of a null of a column that is nullable: NaN, or the class that losses ignore."""
    return math.nan if dtype(column).kind == "f" else MISSING_CLASS


def group_columns(columns: Iterable[Column]) -> tuple[Names, ...]:
    """Return the names of columns in groups: columns of numbers of the same type that follow each other are one.

    Rows of a group are copied together: of many columns, each by itself would cost more than its values.
    """

    def get_key(column: Column) -> tuple[str, ...]:
        together = column.kind == "scalar" and column.type not in ("binary", "bool")
        return (column.type,) if together else (column.type, column.name)

    return tuple(tuple(column.name for column in group) for _, group in groupby(columns, get_key))


def _view_together(columns: list[pa.Array], data: pa.Buffer) -> Array | None:
    """Return columns in `data` as one array (columns, rows), without a copy; None if their distances differ."""
    if any(column.null_count for column in columns):
        return None
    first = columns[0].to_numpy()
    addresses = np.array([column.buffers()[1].address for column in columns])
    distances = np.diff(addresses)
    inside = data.address <= addresses[0] and addresses[-1] + first.nbytes <= data.address + data.size
    if not inside or distances[0] <= 0 or (distances != distances[0]).any():
        return None
    shape, strides = (len(columns), len(first)), (int(distances[0]), first.itemsize)
    return np.lib.stride_tricks.as_strided(first, shape, strides, writeable=False)


def _missing_shard_error(uri: str) -> TrainyardError:
    return TrainyardError(f"{uri} does not exist, but the manifest names it. Export the dataset again.")


def _check_tensors(manifest: DatasetManifest, split: str, columns: Iterable[Column]) -> None:
    for column in columns:
        try:
            if column.type != "binary":
                dtype(column)
        except TypeError:
            raise TrainyardError(
                f"column {column.name!r} has type {column.type}, which cannot become a tensor; encode it as numbers in "
                "prepare.py."
            ) from None
    if manifest.split(split).rows == 0:
        raise TrainyardError(f"split {split!r} has no rows.")


def _to_rows(values: pa.Array, column: Column) -> Rows:
    if column.kind == "tensor":
        return _flatten(values.storage.flatten(), column).reshape(len(values), *column.shape)
    if column.kind == "list":
        offsets = values.offsets.to_numpy().astype(np.int64) // math.prod(column.shape)
        return _to_jagged(_flatten(values.values, column).reshape(-1, *column.shape), offsets)
    if column.type == "binary":
        return _to_bytes(values)
    return _flatten(values, column)


def _to_bytes(values: pa.BinaryArray) -> Jagged:
    """Return the rows of a binary column as uint8; a null row is empty."""
    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, np.int32, len(values) + 1, 4 * values.offset).astype(np.int64)
    flat = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    return _to_jagged(flat, offsets)


def _to_jagged(values: Array, offsets: NDArray[np.int64]) -> Jagged:
    """Return the rows of `values` between offsets. Raises ValueError if a row is not in it."""
    lengths = np.diff(offsets)
    if len(lengths) and (lengths.min() < 0 or offsets[0] < 0 or offsets[-1] > len(values)):
        raise ValueError("a row of variable length is outside of its values")
    return Jagged(values, offsets[:-1], lengths)


def _flatten(values: pa.Array, column: Column) -> Array:
    if values.null_count and column.nullable:
        values = values.fill_null(get_missing(column))
    if values.null_count:
        raise TrainyardError(
            f"column {column.name!r} has nulls, which cannot become a tensor; fill them in prepare.py, or drop "
            "their rows."
        )
    return values.to_numpy(zero_copy_only=column.type != "bool")  # type: ignore[no-any-return]
