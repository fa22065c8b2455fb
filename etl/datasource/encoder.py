"""Checks the Arrow batches that come from Spark and turns them into the storage of a shard."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from trainyard.errors import TrainyardError
from trainyard.etl.datasource import tensors
from trainyard.etl.datasource.columns import Field


@dataclass(frozen=True)
class Rows:
    """One batch from Spark and where its rows stand, so that an error can name one of them."""

    batch: pa.RecordBatch
    partition: int
    first: int
    keys: tuple[str, ...]

    def name(self, index: int) -> str:
        """The row's string columns, or its place when there are none."""
        if not self.keys:
            return f"row {self.first + index} of partition {self.partition}"
        told = [f"{key}={self.batch.column(key)[index].as_py()!r}" for key in self.keys[:3]]
        return f"the row with {', '.join(told)}"


class Encoder:
    """Encodes the batches of one task; learns the shapes that were not declared from the first row."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.fields = fields
        self.first_row = ""

    def encode(self, rows: Rows) -> pa.RecordBatch:
        """The batch with plain storage types: tensors are fixed-size lists. Shares memory with it.

        Raises TrainyardError for a null where none may be and for a shape unlike the first row's.
        """
        if not self.first_row:
            self.first_row = rows.name(0)
            self.fields = tuple(_learn(field, rows) for field in self.fields)
        arrays = [self._column(field, rows) for field in self.fields]
        return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in self.fields])

    def _column(self, field: Field, rows: Rows) -> pa.Array:
        array = rows.batch.column(field.name)
        if field.kind == "scalar":
            if array.null_count and not field.nullable:
                raise _null(field, rows, int(np.argmax(_nulls(array))))
            return array if array.type == field.element else array.cast(field.element)
        lists = _lists(field, rows)
        assert field.shape is not None
        size = math.prod(field.shape)
        found = tensors.lengths(lists)
        if field.kind == "list":
            if (found % size).any():
                index = int(np.argmax(found % size))
                raise _broken(field, rows, index, int(found[index]))
            return pa.ListArray.from_arrays(lists.offsets, lists.values)
        if (found != size).any():
            index = int(np.argmax(found != size))
            raise _unlike(field, int(found[index]), rows.name(index), f"as in {self.first_row}")
        return tensors.to_storage(lists, size)


def refuse_not_finite(field: Field, rows: Rows) -> TrainyardError:
    """The error for the first row whose values hold a NaN or an infinity."""
    array = rows.batch.column(field.name)
    if field.kind == "scalar":
        index = int(np.argmin(np.isfinite(tensors.to_numpy(array).astype(np.float64))))
        value = array[index].as_py()
    else:
        flat = tensors.to_numpy(tensors.values(array)).astype(np.float64)
        place = int(np.argmin(np.isfinite(flat)))
        index = int(np.searchsorted(np.cumsum(tensors.lengths(array)), place, side="right"))
        value = float(flat[place])
    return TrainyardError(
        f"column {field.name!r} holds {value} in {rows.name(index)}; a model cannot be trained on it. "
        f"Replace it or drop the row in prepare, for example df.where(~isnan({field.name!r}))."
    )


def same_shapes(found: list[tuple[int, tuple[Field, ...], str]]) -> tuple[Field, ...]:
    """The fields that all tasks agree on, from (partition, fields, first row) of each.

    Raises TrainyardError when a column has one shape in one task and another elsewhere.
    """
    partition, fields, row = found[0]
    for other_partition, other_fields, other_row in found[1:]:
        for field, other in zip(fields, other_fields, strict=True):
            if field.shape != other.shape:
                assert other.shape is not None
                place = f"in partition {partition} (as in {row})"
                raise _unlike(field, math.prod(other.shape), f"{other_row}, in partition {other_partition},", place)
    return fields


def _lists(field: Field, rows: Rows) -> pa.ListArray:
    array = rows.batch.column(field.name)
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(field.element))
    if array.null_count:
        raise _null(field, rows, int(np.argmax(_nulls(array))))
    flat = tensors.values(array)
    if flat.null_count:
        place = int(np.argmax(_nulls(flat)))
        raise _null(field, rows, int(np.searchsorted(np.cumsum(tensors.lengths(array)), place, side="right")))
    return array


def _learn(field: Field, rows: Rows) -> Field:
    if field.kind != "tensor":
        return field
    size = int(tensors.lengths(_lists(field, rows).slice(0, 1))[0])
    if field.shape is None and size == 0:
        raise TrainyardError(
            f"column {field.name!r} is an empty array in {rows.name(0)}; a tensor has at least one value. "
            f"If rows may differ in length, name the column in 'variableLength'."
        )
    return field if field.shape else replace(field, shape=(size,))


def _nulls(array: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = array.is_null().to_numpy(zero_copy_only=False)
    return found


def _null(field: Field, rows: Rows, index: int) -> TrainyardError:
    what = "is null" if field.kind == "scalar" else "is null, or holds a null,"
    fill = f"df.fillna({{{field.name!r}: 0}})" if field.kind == "scalar" else "coalesce() or transform()"
    return TrainyardError(
        f"column {field.name!r} {what} in {rows.name(index)}; only string, binary, date and timestamp columns may "
        f"have nulls. In prepare, fill it with {fill}, or drop the row with df.dropna(subset=[{field.name!r}])."
    )


def _broken(field: Field, rows: Rows, index: int, found: int) -> TrainyardError:
    assert field.shape is not None
    return TrainyardError(
        f"column {field.name!r} has {found} values in {rows.name(index)}, which is no whole number of elements of "
        f"shape {list(field.shape)}, as 'shapes' says: each takes {math.prod(field.shape)}."
    )


def _unlike(field: Field, found: int, row: str, origin: str) -> TrainyardError:
    assert field.shape is not None
    expected = math.prod(field.shape)
    shape = f" (shape {list(field.shape)})" if len(field.shape) > 1 else ""
    return TrainyardError(
        f"column {field.name!r} has {found} values in {row} but {expected}{shape} {origin}. Give all rows the same "
        f"shape in prepare and say which in shapes={{{field.name!r}: [...]}}, or name it in 'variableLength' if rows may vary."
    )
