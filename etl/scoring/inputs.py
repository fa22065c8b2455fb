"""Check the rows that a model is applied to, and convert their Arrow columns to arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import types as spark

from trainyard.errors import TrainyardError
from trainyard.schemas.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.data.jagged import Jagged
from trainyard.trainer.data.split_reader import dtype

Columns = Mapping[str, NDArray[Any] | Jagged]

_FLOATS = ("float", "double", "halffloat")
_INTEGERS = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType, spark.BooleanType)


def build_zero_rows(inputs: Sequence[Column]) -> dict[str, NDArray[Any] | Jagged]:
    """Return two rows of zeros, which show the shape of a network's output.

    A variable-length column has one element in each.
    """
    return {column.name: _build_zeros(column) for column in inputs}


def _build_zeros(column: Column) -> NDArray[Any] | Jagged:
    if column.kind == "list":
        return Jagged.from_rows([np.zeros((1, *column.shape), dtype(column))] * 2)
    return np.zeros((2, *column.shape), dtype(column))


def check_inputs(schema: spark.StructType, artifact: ModelArtifact, rows: str, required: Sequence[str] = ()) -> None:
    """Check that a DataFrame has the columns that a model takes.

    Args:
        schema: The schema of the DataFrame.
        artifact: The model.
        rows: What the DataFrame is, for the message: "the rows to predict for".
        required: Further columns that it must have, of any type.

    Raises:
        TrainyardError: Columns are missing or have another type or shape; the message names all of them.
    """
    types = {field.name: field.dataType for field in schema.fields}
    names = (*(column.name for column in artifact.inputs), *required)
    problems = [f"have no column {name!r}" for name in names if name not in types]
    for column in artifact.inputs:
        if column.name in types and not _is_compatible(types[column.name], column):
            shape = f" of shape {list(column.shape)}" if column.shape else ""
            problems.append(
                f"have {types[column.name].simpleString()} in column {column.name!r}, but the model was trained on "
                f"{column.type}{shape}"
            )
    if problems:
        raise TrainyardError(
            f"{rows} {'; they '.join(problems)}. Their columns are {', '.join(types)}: prepare them as for the export."
        )


def to_array(batch: pa.RecordBatch, column: Column) -> NDArray[Any] | Jagged:
    """Return one column of an Arrow batch as (rows, *shape), or as Jagged if rows differ in length or are bytes.

    Raises:
        TrainyardError: The rows have another shape, or nulls.
    """
    values = batch.column(column.name)
    rows, nulls = len(values), values.null_count
    if pa.types.is_binary(values.type):
        return Jagged.from_rows([np.frombuffer(row or b"", np.uint8) for row in values.to_pylist()])
    lists = values
    while pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        values = values.flatten()
        nulls += values.null_count
    if nulls:
        raise TrainyardError(f"column {column.name!r} has nulls, which a network cannot process; fill or drop them.")
    flat = values.to_numpy(zero_copy_only=False)
    if column.kind == "list":
        return _to_jagged(np.diff(lists.offsets.to_numpy()), flat, column)
    if flat.size != rows * int(np.prod(column.shape)):
        raise TrainyardError(
            f"column {column.name!r} has {flat.size / max(rows, 1):g} elements in a row; the model takes shape "
            f"{list(column.shape)}."
        )
    return flat.reshape(rows, *column.shape).astype(dtype(column), copy=False)  # type: ignore[no-any-return]


def _to_jagged(lengths: NDArray[Any], flat: NDArray[Any], column: Column) -> Jagged:
    size = math.prod(column.shape)
    if (lengths % size).any():
        raise TrainyardError(
            f"column {column.name!r} has a row of {lengths[(lengths % size).argmax()]} values; the model takes any "
            f"number of elements of shape {list(column.shape)}, {size} values each."
        )
    lengths = lengths.astype(np.int64) // size
    values = flat.reshape(-1, *column.shape).astype(dtype(column), copy=False)
    return Jagged(values, np.cumsum(lengths) - lengths, lengths)


def _is_compatible(kind: spark.DataType, column: Column) -> bool:
    """Return whether a Spark type converts to a model's input: integers convert to any number."""
    if isinstance(kind, spark.BinaryType):
        return column.kind == "tensor"  # bytes are decoded to a tensor
    nested = isinstance(kind, spark.ArrayType)
    while isinstance(kind, spark.ArrayType):
        kind = kind.elementType
    if nested != bool(column.shape or column.kind == "list"):
        return False
    if column.type in _FLOATS:
        return isinstance(kind, (*_INTEGERS, spark.FloatType, spark.DoubleType))
    if column.type == "bool" or "int" in column.type:
        return isinstance(kind, _INTEGERS)
    return True
