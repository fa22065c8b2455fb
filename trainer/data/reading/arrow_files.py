"""Read Arrow files that somebody else may have written: nothing outside of the file is read, whatever it says.

pyarrow trusts the number of rows in a file: arrays that have fewer bytes read beyond their end, and a memory map ends
the process with SIGBUS. What is checked costs the same for any number of rows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column, Shard

_HEADER_SLOT, _COMPRESSION_SLOT = 2, 3
"""The positions of `Message.header` and `RecordBatch.compression` in Arrow's flatbuffers."""


@contextmanager
def altered_if_invalid(uri: str) -> Iterator[None]:
    """Raise any error inside as a TrainyardError that names the shard `uri`: pyarrow raises many kinds."""
    try:
        yield
    except TrainyardError:
        raise
    except Exception as error:
        raise TrainyardError(
            f"{uri} is not what the manifest describes ({error}): it was altered. Export the dataset again."
        ) from error


def check_index(uri: str, shard: Shard) -> None:
    """Check that the record batches of a shard in the manifest lie in its file, and have its rows.

    Raises:
        TrainyardError: They do not.
    """
    count = len(shard.lengths)
    fits = min(shard.begin, *shard.lengths, 0) == 0 and shard.begin + sum(shard.lengths) <= shard.bytes
    has_rows = shard.batch_rows > 0 and (count - 1) * shard.batch_rows < shard.rows <= count * shard.batch_rows
    if not fits or not has_rows or count != len(shard.crc32s):
        raise TrainyardError(
            f"the manifest describes no file with {shard.rows} rows and {shard.bytes} bytes for {uri}: it was altered. "
            "Export the dataset again."
        )


def check_schema(schema: pa.Schema, columns: Iterable[Column]) -> pa.Schema:
    """Return the schema of a shard, whose columns have the types in the manifest. Raises ValueError otherwise."""
    for column in columns:
        found = schema.field(column.name).type
        if not _has_type(found, column):
            raise ValueError(f"column {column.name!r} has type {found}")
    return schema


def _has_type(found: pa.DataType, column: Column) -> bool:
    if column.kind == "tensor":
        is_tensor = isinstance(found, pa.FixedShapeTensorType)
        return is_tensor and str(found.value_type) == column.type and tuple(found.shape) == column.shape
    if column.kind == "list":
        return pa.types.is_list(found) and str(found.value_type) == column.type and 0 not in column.shape
    return str(found) == column.type and not column.shape


def read_batch(data: pa.Buffer, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """Read a record batch whose arrays lie in `data`.

    The offsets of variable-length rows between the first and the last are not checked.

    Args:
        data: The bytes of the record batch.
        schema: Its schema.
        rows: The number of its rows in the manifest.

    Raises:
        ValueError: It is compressed, or has another number of rows; pyarrow raises others for what it finds.
    """
    message = pa.ipc.read_message(data)
    if message.type != "record batch":
        raise ValueError(f"there is a {message.type} in place of a record batch")
    if _is_compressed(message.metadata.to_pybytes()):
        raise ValueError("it is compressed, which no export does")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate()
    if batch.num_rows != rows:
        raise ValueError(f"a record batch has {batch.num_rows} rows in place of {rows}")
    return batch


def _is_compressed(metadata: bytes) -> bool:
    """Return whether a message, which pyarrow has verified as a flatbuffer, has a compressed record batch."""
    (root,) = struct.unpack_from("<I", metadata)
    header = root + _find_field(metadata, root, _HEADER_SLOT)
    (offset,) = struct.unpack_from("<I", metadata, header)
    return _find_field(metadata, header + offset, _COMPRESSION_SLOT) > 0


def _find_field(metadata: bytes, table: int, slot: int) -> int:
    """Return the offset of a field in a table of a flatbuffer, 0 if it is not there."""
    (distance,) = struct.unpack_from("<i", metadata, table)
    vtable, entry = table - distance, 4 + 2 * slot
    (size,) = struct.unpack_from("<H", metadata, vtable)
    return int(struct.unpack_from("<H", metadata, vtable + entry)[0]) if entry < size else 0
