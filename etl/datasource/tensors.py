"""Convert between Arrow list columns and fixed-shape tensors."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def get_lengths(column: pa.ListArray) -> npt.NDArray[np.int64]:
    """Return the number of values in each row, shape (rows,). No row may be null."""
    lengths: npt.NDArray[np.int64] = np.diff(column.offsets.to_numpy()).astype(np.int64, copy=False)
    return lengths


def flatten(column: pa.Array) -> pa.Array:
    """Return all values of a list or fixed-size-list column, row after row, sharing its memory."""
    return column.flatten()


def to_storage(column: pa.ListArray, size: int) -> pa.FixedSizeListArray:
    """Return a list column whose rows all have `size` values as a fixed-size list, sharing its memory."""
    flat = flatten(column)
    assert len(flat) == len(column) * size
    return pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(column.type.value_type, size))


def to_tensor(storage: pa.FixedSizeListArray, kind: pa.DataType) -> pa.ExtensionArray:
    """Return fixed-size lists as tensors of the `fixed_shape_tensor` type `kind`, sharing their memory."""
    return pa.ExtensionArray.from_storage(kind, storage.cast(kind.storage_type))


def to_list(tensor: pa.ExtensionArray, kind: pa.ListType) -> pa.ListArray:
    """Return tensors as flat lists of type `kind`, sharing their memory."""
    flat = flatten(tensor.storage)
    size = tensor.type.storage_type.list_size
    offsets = pa.array(np.arange(0, len(flat) + 1, size, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, flat, type=kind)


def to_numpy(flat: pa.Array) -> npt.NDArray[np.generic]:
    """Return values without nulls as NumPy, shape (values,); shares memory except for booleans."""
    values: npt.NDArray[np.generic] = flat.to_numpy(zero_copy_only=False)
    return values
