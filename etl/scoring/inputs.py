"""A model in a Spark Python worker: loaded once, fed with Arrow batches."""

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
_WHOLE = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType, spark.BooleanType)


def zeros(inputs: Sequence[Column]) -> dict[str, NDArray[Any] | Jagged]:
    """Two rows of zeros, of one element each where rows differ in length, to see what a network makes of rows."""
    return {column.name: _zeros(column) for column in inputs}


def _zeros(column: Column) -> NDArray[Any] | Jagged:
    if column.kind == "list":
        return Jagged.of([np.zeros((1, *column.shape), dtype(column))] * 2)
    return np.zeros((2, *column.shape), dtype(column))


def check_inputs(schema: spark.StructType, found: ModelArtifact, where: str, also: Sequence[str] = ()) -> None:
    """Raises TrainyardError that names each column, of the model's or of `also`, that is missing or not of its kind."""
    there = {field.name: field.dataType for field in schema.fields}
    wrong = [f"has no column {name!r}" for name in (*(c.name for c in found.inputs), *also) if name not in there]
    for column in found.inputs:
        if column.name in there and not _fits(there[column.name], column):
            shape = f" of shape {list(column.shape)}" if column.shape else ""
            wrong.append(
                f"has {there[column.name].simpleString()} in column {column.name!r}, and the model was trained on "
                f"{column.type}{shape}"
            )
    if wrong:
        raise TrainyardError(f"{where} {'; it '.join(wrong)}. It has {', '.join(there)}: shape it as for the export.")


def array(batch: pa.RecordBatch, column: Column) -> NDArray[Any] | Jagged:
    """One column of a Spark Arrow batch as (rows, *shape), or Jagged where rows differ in length or are bytes.

    Raises TrainyardError for another shape, and for nulls.
    """
    values = batch.column(column.name)
    rows, nulls = len(values), values.null_count
    if pa.types.is_binary(values.type):
        return Jagged.of([np.frombuffer(row or b"", np.uint8) for row in values.to_pylist()])
    lists = values
    while pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        values = values.flatten()
        nulls += values.null_count
    if nulls:
        raise TrainyardError(f"column {column.name!r} has nulls, which a network cannot take; fill or drop them.")
    flat = values.to_numpy(zero_copy_only=False)
    if column.kind == "list":
        return _jagged(np.diff(lists.offsets.to_numpy()), flat, column)
    if flat.size != rows * int(np.prod(column.shape)):
        raise TrainyardError(
            f"column {column.name!r} has {flat.size / max(rows, 1):g} elements in a row; the model takes shape "
            f"{list(column.shape)}."
        )
    return flat.reshape(rows, *column.shape).astype(dtype(column), copy=False)  # type: ignore[no-any-return]


def _jagged(lengths: NDArray[Any], flat: NDArray[Any], column: Column) -> Jagged:
    size = math.prod(column.shape)
    if (lengths % size).any():
        raise TrainyardError(
            f"column {column.name!r} has a row of {lengths[(lengths % size).argmax()]} values; the model takes any "
            f"number of elements of shape {list(column.shape)}, {size} values each."
        )
    lengths = lengths.astype(np.int64) // size
    values = flat.reshape(-1, *column.shape).astype(dtype(column), copy=False)
    return Jagged(values, np.cumsum(lengths) - lengths, lengths)


def _fits(have: spark.DataType, want: Column) -> bool:
    """Whether values of a Spark type can be what the network was trained on: whole numbers may stand for others."""
    if isinstance(have, spark.BinaryType):
        return want.kind == "tensor"  # what it is decoded to
    nested = isinstance(have, spark.ArrayType)
    while isinstance(have, spark.ArrayType):
        have = have.elementType
    if nested != bool(want.shape or want.kind == "list"):
        return False
    if want.type in _FLOATS:
        return isinstance(have, (*_WHOLE, spark.FloatType, spark.DoubleType))
    if want.type == "bool" or "int" in want.type:
        return isinstance(have, _WHOLE)
    return True
