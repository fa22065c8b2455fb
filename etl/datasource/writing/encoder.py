"""Check the Arrow batches that come from Spark, and convert them to the storage of a shard."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trainyard.errors import TrainyardError
from trainyard.etl.datasource import tensors
from trainyard.etl.datasource.columns import Field
from trainyard.schemas.datasets.manifest import MISSING_CLASS

_MAX_KEYS = 3


@dataclass(frozen=True)
class SparkBatch:
    """One Arrow batch from Spark, with what it takes to name one of its rows in an error.

    Attributes:
        batch: The rows.
        partition: The number of the Spark partition.
        first: The number of the batch's first row within the partition.
        keys: The string columns, whose values name a row.
    """

    batch: pa.RecordBatch
    partition: int
    first: int
    keys: tuple[str, ...]

    def describe_row(self, index: int) -> str:
        """Return the values of the row's string columns, or its position if there are none."""
        if not self.keys:
            return f"row {self.first + index} of partition {self.partition}"
        values = [f"{key}={self.batch.column(key)[index].as_py()!r}" for key in self.keys[:_MAX_KEYS]]
        return f"the row with {', '.join(values)}"


class Encoder:
    """Encode the batches of one task. The first row determines the shapes that the user did not declare."""

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self.fields = fields
        self.first_row = ""

    def encode(self, rows: SparkBatch) -> pa.RecordBatch:
        """Return the batch with plain storage types: tensors are fixed-size lists. Shares memory with `rows`.

        Raises:
            TrainyardError: A column that must not have nulls has one, or a row differs in shape from the first.
        """
        if not self.first_row:
            self.first_row = rows.describe_row(0)
            self.fields = tuple(_infer_shape(field, rows) for field in self.fields)
        arrays = [self._encode_column(field, rows) for field in self.fields]
        return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in self.fields])

    def _encode_column(self, field: Field, rows: SparkBatch) -> pa.Array:
        if field.kind == "scalar":
            array = rows.batch.column(field.name)
            if array.null_count and not field.nullable:
                raise _null_error(field, rows, int(np.argmax(_find_nulls(array))))
            if field.has_nulls and pa.types.is_integer(field.element):
                _check_stands_for_null(field, rows, array)
            return array if array.type == field.element else array.cast(field.element)
        lists = _get_lists(field, rows)
        assert field.shape is not None
        size = math.prod(field.shape)
        lengths = tensors.get_lengths(lists)
        if field.kind == "list":
            if (lengths % size).any():
                index = int(np.argmax(lengths % size))
                raise _partial_element_error(field, rows, index, int(lengths[index]))
            return pa.ListArray.from_arrays(lists.offsets, lists.values)
        if (lengths != size).any():
            index = int(np.argmax(lengths != size))
            raise _shape_error(field, int(lengths[index]), rows.describe_row(index), f"in {self.first_row}")
        return tensors.to_storage(lists, size)


def _check_stands_for_null(field: Field, rows: SparkBatch, array: pa.Array) -> None:
    """Check that no integer is what a batch has in place of a null. Raises TrainyardError if one is."""
    index = pc.index(array, pa.scalar(MISSING_CLASS, array.type)).as_py()
    if index >= 0:
        raise TrainyardError(
            f"column {field.name!r} is {MISSING_CLASS} in {rows.describe_row(index)}, which stands for null in a "
            "column of integers that is nullable. Write null in prepare, or cast the column to double."
        )


def not_finite_error(field: Field, rows: SparkBatch) -> TrainyardError:
    """Return the error for the first row of a column that has a NaN or an infinity."""
    array = rows.batch.column(field.name)
    if field.kind == "scalar":
        numbers = tensors.to_numpy(array.fill_null(0) if array.null_count else array)
        index = int(np.argmin(np.isfinite(numbers.astype(np.float64))))
        value = array[index].as_py()
    else:
        flat = tensors.to_numpy(tensors.flatten(array)).astype(np.float64)
        position = int(np.argmin(np.isfinite(flat)))
        index = _find_row(array, position)
        value = float(flat[position])
    return TrainyardError(
        f"column {field.name!r} is {value} in {rows.describe_row(index)}; a model cannot be trained on it. "
        f"Replace the value or drop the row in prepare, for example df.where(~isnan({field.name!r}))."
    )


def unify_fields(outputs: list[tuple[int, tuple[Field, ...], str]]) -> tuple[Field, ...]:
    """Return the fields of a write whose tasks inferred shapes independently.

    Args:
        outputs: (partition, fields, description of the first row) of each task.

    Raises:
        TrainyardError: A column has different shapes in two tasks.
    """
    partition, fields, row = outputs[0]
    for other_partition, other_fields, other_row in outputs[1:]:
        for field, other in zip(fields, other_fields, strict=True):
            if field.shape != other.shape:
                assert other.shape is not None
                reference = f"in {row}, in partition {partition}"
                raise _shape_error(
                    field, math.prod(other.shape), f"{other_row}, in partition {other_partition},", reference
                )
    return fields


def _get_lists(field: Field, rows: SparkBatch) -> pa.ListArray:
    """Return an array column as lists, checked for nulls."""
    array = rows.batch.column(field.name)
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(field.element))
    if array.null_count:
        raise _null_error(field, rows, int(np.argmax(_find_nulls(array))))
    flat = tensors.flatten(array)
    if flat.null_count:
        raise _null_error(field, rows, _find_row(array, int(np.argmax(_find_nulls(flat)))))
    return array


def _find_row(lists: pa.ListArray, position: int) -> int:
    """Return the row that has the value at `position` of the flattened column."""
    return int(np.searchsorted(np.cumsum(tensors.get_lengths(lists)), position, side="right"))


def _infer_shape(field: Field, rows: SparkBatch) -> Field:
    if field.kind != "tensor":
        return field
    size = int(tensors.get_lengths(_get_lists(field, rows).slice(0, 1))[0])
    if field.shape is None and size == 0:
        raise TrainyardError(
            f"column {field.name!r} is an empty array in {rows.describe_row(0)}; a tensor has at least one value. "
            f"{_variable_length_advice(field)}"
        )
    return field if field.shape else replace(field, shape=(size,))


def _find_nulls(array: pa.Array) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _null_error(field: Field, rows: SparkBatch, index: int) -> TrainyardError:
    problem = "is null" if field.kind == "scalar" else "is null, or contains a null,"
    fill = f"df.fillna({{{field.name!r}: 0}})" if field.kind == "scalar" else "coalesce() or transform()"
    return TrainyardError(
        f"column {field.name!r} {problem} in {rows.describe_row(index)}; only string, binary, date and timestamp "
        f"columns may have nulls, and labels that `nullable` names. In prepare, fill it with {fill}, or drop the row "
        f"with df.dropna(subset=[{field.name!r}])."
    )


def _partial_element_error(field: Field, rows: SparkBatch, index: int, length: int) -> TrainyardError:
    assert field.shape is not None
    size = math.prod(field.shape)
    return TrainyardError(
        f"column {field.name!r} has {length} values in {rows.describe_row(index)}, which is not a multiple of {size}: "
        f"`shapes` declares elements of shape {list(field.shape)}. Pad the row in prepare, or correct `shapes`."
    )


def _shape_error(field: Field, size: int, row: str, reference: str) -> TrainyardError:
    assert field.shape is not None
    shape = f" (shape {list(field.shape)})" if len(field.shape) > 1 else ""
    return TrainyardError(
        f"column {field.name!r} has {size} values in {row} but {math.prod(field.shape)}{shape} {reference}. Make all "
        f"rows the same shape in prepare and declare it with shapes={{{field.name!r}: [...]}}. "
        f"{_variable_length_advice(field)}"
    )


def _variable_length_advice(field: Field) -> str:
    return (
        f"If the length may differ between rows, name {field.name!r} in `variable_length` (`variableLength` in the "
        "options of the data source)."
    )
