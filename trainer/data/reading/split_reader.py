"""Read one split of a dataset: its record batches as NumPy arrays over the memory map, without a copy."""

from __future__ import annotations

import mmap
import os
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.files.retries import retry
from trainyard.schemas.datasets.manifest import Column, DatasetManifest, RecordBatch, Shard
from trainyard.trainer.data.reading.arrow_files import altered_if_invalid, check_index, check_schema, read_batch
from trainyard.trainer.data.reading.blocks import Block, dtype, group_columns
from trainyard.trainer.data.reading.cache import FOLDER, CacheFullError, ShardCache, checksum_error
from trainyard.trainer.folders import name_folder

MAX_DESCRIBED = 4
"""The values by which an error names a row."""
OPEN_SHARDS = 256
OPEN_BLOCKS = 128
"""Blocks of each open shard whose arrays are kept: more than a worker reads by turns in most datasets."""
FETCHERS = 4
CACHE_BYTES = 32 << 30
"""The default limit of the shard cache."""


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
