"""One split of a batch dataset, memory mapped: record batches as NumPy arrays without a copy."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainyard.contract import storage
from trainyard.contract.errors import TrainyardError
from trainyard.contract.manifest import BatchManifest, Column, Shard

OPEN_SHARDS = 256
OPEN_BLOCKS = 1024

Block = dict[str, NDArray[np.generic]]


class Dataset:
    """The record batches ("blocks") of one split, and the columns of them that were asked for.

    A shard's size is compared with the manifest when it is opened, and its checksum too with
    `verify`; each then costs one read. Raises TrainyardError naming a shard that differs.
    """

    def __init__(
        self, uri: str, manifest: BatchManifest, split: str, columns: tuple[str, ...], verify: bool = True
    ) -> None:
        self.uri = uri
        self.name = split
        self.columns = tuple(_tensor_column(manifest, split, name) for name in columns)
        self.statistics = manifest.split(split).statistics
        self._shards = manifest.split(split).shards
        self._verify = verify
        self._verified: set[str] = set()
        self._open: OrderedDict[str, tuple[pa.Buffer, pa.Schema]] = OrderedDict()
        self.block = lru_cache(OPEN_BLOCKS)(self._block)
        self._where = [(shard, batch) for shard in self._shards for batch in shard.batches]
        self.blocks = tuple(batch.rows for _, batch in self._where)

    @cached_property
    def rows(self) -> int:
        return sum(self.blocks)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row in memory, over the columns asked for."""
        return max(1, sum(dtype(column).itemsize * int(np.prod(column.shape)) for column in self.columns))

    def _block(self, number: int) -> Block:
        """The columns of record batch `number`: read-only arrays (rows, *shape) over the memory map."""
        shard, where = self._where[number]
        buffer, schema = self._shard(shard)
        batch = pa.ipc.read_record_batch(pa.py_buffer(buffer)[where.offset : where.offset + where.length], schema)
        return {column.name: _array(batch.column(column.name), column) for column in self.columns}

    def _shard(self, shard: Shard) -> tuple[pa.Buffer, pa.Schema]:
        if shard.path in self._open:
            self._open.move_to_end(shard.path)
            return self._open[shard.path]
        uri = storage.join(self.uri, shard.path)
        path = storage.local_path(uri)
        try:
            buffer = pa.memory_map(str(path)).read_buffer() if path else pa.py_buffer(storage.read(uri))
        except FileNotFoundError:
            raise TrainyardError(f"{uri} is gone, but the manifest names it; export the dataset again.") from None
        self._check(uri, shard, buffer)
        self._open[shard.path] = buffer, pa.ipc.open_file(buffer).schema
        if len(self._open) > OPEN_SHARDS:
            self._open.popitem(last=False)
        return self._open[shard.path]

    def _check(self, uri: str, shard: Shard, buffer: pa.Buffer) -> None:
        if buffer.size != shard.bytes:
            raise TrainyardError(
                f"{uri} has {buffer.size} bytes, the manifest says {shard.bytes}: it was truncated or "
                "overwritten. Export the dataset again."
            )
        if self._verify and shard.path not in self._verified:
            if hashlib.sha256(buffer).hexdigest() != shard.sha256:
                raise TrainyardError(
                    f"{uri} was altered: its sha256 differs from the manifest's. Export the dataset again."
                )
            self._verified.add(shard.path)


def dtype(column: Column) -> np.dtype[np.generic]:
    """The NumPy type of a column's elements."""
    return np.dtype({"float": "float32", "double": "float64", "bool": "bool"}.get(column.type, column.type))


def _tensor_column(manifest: BatchManifest, split: str, name: str) -> Column:
    column = manifest.column(name)
    if column.kind == "list":
        raise TrainyardError(
            f"column {name!r} has lists of varying length; a batch needs one shape. Pad it in prepare.py, "
            "and leave it out of lists=."
        )
    try:
        dtype(column)
    except TypeError:
        raise TrainyardError(
            f"column {name!r} is of type {column.type}, which is no tensor; encode it as numbers in prepare.py."
        ) from None
    if manifest.split(split).rows == 0:
        raise TrainyardError(f"split {split!r} has no rows.")
    return column


def _array(values: pa.Array, column: Column) -> NDArray[np.generic]:
    if column.kind == "tensor":
        return values.to_numpy_ndarray()  # type: ignore[no-any-return]
    return values.to_numpy(zero_copy_only=column.type != "bool")  # type: ignore[no-any-return]
