"""Arrow list columns and fixed-shape tensors: the same values, with or without a copy of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def lengths(column: pa.ListArray) -> npt.NDArray[np.int64]:
    """The number of values in each row, shape (rows,). No row may be null."""
    found: npt.NDArray[np.int64] = np.diff(column.offsets.to_numpy()).astype(np.int64, copy=False)
    return found


def values(column: pa.Array) -> pa.Array:
    """All values of a list or fixed-size-list column, row after row, sharing its memory."""
    return column.flatten()


def to_storage(column: pa.ListArray, size: int) -> pa.FixedSizeListArray:
    """A list column whose rows all have `size` values as a fixed-size list, sharing its memory."""
    flat = values(column)
    assert len(flat) == len(column) * size
    return pa.FixedSizeListArray.from_arrays(flat, type=pa.list_(column.type.value_type, size))


def to_tensor(storage: pa.FixedSizeListArray, kind: pa.DataType) -> pa.ExtensionArray:
    """Fixed-size lists as tensors of the `fixed_shape_tensor` type `kind`, sharing their memory."""
    return pa.ExtensionArray.from_storage(kind, storage.cast(kind.storage_type))


def to_list(tensor: pa.ExtensionArray, kind: pa.ListType) -> pa.ListArray:
    """Tensors as the flat lists of type `kind` that they were made from, sharing their memory."""
    flat = values(tensor.storage)
    size = tensor.type.storage_type.list_size
    offsets = pa.array(np.arange(0, len(flat) + 1, size, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, flat, type=kind)


def to_numpy(flat: pa.Array) -> npt.NDArray[np.generic]:
    """Values without nulls as NumPy, shape (values,); shares memory except for booleans."""
    found: npt.NDArray[np.generic] = flat.to_numpy(zero_copy_only=False)
    return found
