"""The rows of a record batch, column by column: NumPy arrays over its memory, without a copy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.types import is_binary, is_nested

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import MISSING_CLASS, Column
from trainyard.trainer.data.reading.jagged import Array, Jagged

MAX_VALUE_LENGTH = 80
"""The characters of a value by which an error names a row."""

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
