"""Convert Arrow columns to the arrays that a model is applied to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column
from trainyard.trainer.data.reading.blocks import dtype, get_missing
from trainyard.trainer.data.reading.jagged import Integers, Jagged
from trainyard.trainer.model.artifacts.rows import cast

Columns = Mapping[str, NDArray[Any] | Jagged]


def build_zero_rows(inputs: Sequence[Column], length: int = 1) -> dict[str, NDArray[Any] | Jagged]:
    """Return two rows of zeros, which show the shape of a network's output.

    A variable-length column has `length` elements in each.
    """
    return {column.name: _build_zeros(column, length) for column in inputs}


def build_samples(inputs: Sequence[Column]) -> list[dict[str, NDArray[Any] | Jagged]]:
    """Return two rows of zeros, and two longer ones if there are variable-length columns.

    A network whose outputs for them differ in shape returns a value for each element.
    """
    lengths = (1, 2) if any(column.kind == "list" for column in inputs) else (1,)
    return [build_zero_rows(inputs, length) for length in lengths]


def _build_zeros(column: Column, length: int) -> NDArray[Any] | Jagged:
    if column.kind == "list":
        return Jagged.from_rows([np.zeros((length, *column.shape), dtype(column))] * 2)
    return np.zeros((2, *column.shape), dtype(column))


def to_array(batch: pa.RecordBatch, column: Column) -> NDArray[Any] | Jagged:
    """Return one column of an Arrow batch as (rows, *shape), or as Jagged if rows differ in length or are bytes.

    A null of a column that is nullable becomes what `get_missing` returns.

    Raises:
        TrainyardError: A row has another shape, a null, or a value that the column's type cannot represent.
    """
    values = batch.column(column.name)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return _to_bytes(values)
    if values.null_count and column.nullable:
        values = _fill(values, column)
    flat, lengths, levels = _flatten(values, column)
    size = math.prod(column.shape)
    if column.kind == "list":
        return _to_jagged(lengths, flat, column)
    if (lengths != size).any():
        row = int((lengths != size).argmax())
        raise TrainyardError(
            f"column {column.name!r} has {lengths[row]} elements in row {row} of a batch; the model takes shape "
            f"{list(column.shape)}, {size} elements."
        )
    if len(levels) == len(column.shape):
        _check_nesting(levels, column)
    return _to_numbers(flat, column).reshape(-1, *column.shape)


def find_labeled(labels: NDArray[Any], column: Column) -> Integers | None:
    """Return the numbers of the rows that have a label; None if it is not nullable, so that all have one."""
    if not column.nullable:
        return None
    missing = get_missing(column)
    return np.flatnonzero(~np.isnan(labels) if math.isnan(missing) else labels != missing)


def _fill(values: pa.Array, column: Column) -> pa.Array:
    """Return the numbers of a column, which may have another type than in training, without nulls."""
    missing = get_missing(column)
    is_float = pa.types.is_floating(values.type)
    return (values if is_float or not math.isnan(missing) else values.cast(pa.float64())).fill_null(missing)


def _to_bytes(values: pa.Array) -> Jagged:
    """Return the bytes of each row, none for a null; they are not copied."""
    large = values.cast(pa.large_binary()).fill_null(b"")
    _, offsets, data = large.buffers()
    bounds = np.frombuffer(offsets, np.int64)[large.offset :][: len(large) + 1]
    return Jagged(np.frombuffer(data or b"", np.uint8), bounds[:-1], np.diff(bounds))


def _flatten(values: pa.Array, column: Column) -> tuple[pa.Array, Integers, list[Integers]]:
    """Return the numbers of all rows end to end, how many each row has, and the lengths of the lists of each level."""
    bounds = np.arange(len(values) + 1)
    levels: list[Integers] = []
    while True:
        if values.null_count:
            raise TrainyardError(
                f"column {column.name!r} has nulls, which a network cannot process; fill or drop them."
            )
        if not (pa.types.is_list(values.type) or pa.types.is_large_list(values.type)):
            return values, np.diff(bounds), levels
        offsets = values.offsets.to_numpy().astype(np.int64)
        levels.append(np.diff(offsets))
        bounds = (offsets - offsets[0])[bounds]
        values = values.flatten()


def _check_nesting(levels: Sequence[Integers], column: Column) -> None:
    """Check nested arrays, whose rows may have the right number of elements in lists of other lengths."""
    for lengths, size in zip(levels, column.shape, strict=True):
        if (lengths != size).any():
            raise TrainyardError(
                f"column {column.name!r} has an array of {lengths[(lengths != size).argmax()]} elements where the "
                f"model, which takes shape {list(column.shape)}, has {size}."
            )


def _to_jagged(lengths: Integers, flat: pa.Array, column: Column) -> Jagged:
    size = math.prod(column.shape)
    if (lengths % size).any():
        row = int((lengths % size).argmax())
        raise TrainyardError(
            f"column {column.name!r} has {lengths[row]} values in row {row} of a batch; the model takes any number of "
            f"elements of shape {list(column.shape)}, {size} values each."
        )
    lengths = lengths // size
    return Jagged(_to_numbers(flat, column).reshape(-1, *column.shape), np.cumsum(lengths) - lengths, lengths)


def _to_numbers(values: pa.Array, column: Column) -> NDArray[Any]:
    return cast(values.to_numpy(zero_copy_only=False), column)
