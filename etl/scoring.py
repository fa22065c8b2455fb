"""A model in a Spark Python worker: loaded once, fed with Arrow batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import types as spark

from trainer import bundle
from trainer.bundle import Model
from trainer.dataset import dtype
from trainer.ragged import Ragged
from trainyard.contract.bundle import ModelBundle
from trainyard.contract.errors import TrainyardError
from trainyard.contract.manifest import Column

Columns = Mapping[str, NDArray[Any] | Ragged]

_FLOATS = ("float", "double", "halffloat")
_WHOLE = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType, spark.BooleanType)


@lru_cache(maxsize=8)
def model(uri: str, document: str) -> Model:
    """The model of the bundle `document` at `uri`, as loaded first in this process.

    Spark runs a worker for each slot, so torch has the cores, and the GPU, of one task here.
    """
    import torch

    context = TaskContext.get()
    torch.set_num_threads(context.cpus() if context else 1)
    gpus = context.resources().get("gpu") if context else None
    if gpus and int(gpus.addresses[0]) < torch.cuda.device_count():
        torch.cuda.set_device(int(gpus.addresses[0]))
    return bundle.restore(uri, ModelBundle.from_json(document, origin=uri))


@lru_cache(maxsize=8)
def pace(uri: str, document: str, rows: int | None) -> Pace:
    """The pace of that model in this process."""
    return Pace(rows)


class Pace:
    """How many rows a network is given at once: `fixed`, or twice as many for as long as that makes it faster."""

    FIRST, MOST, TRIES, FASTER = 64, 1 << 16, 2, 1.05

    def __init__(self, fixed: int | None = None) -> None:
        self.rows = fixed or self.FIRST
        self._settled = fixed is not None
        self._best = (0.0, self.rows)
        self._rates: list[float] = []
        self._in_vain = 0

    def over(self, apply: Callable[[Columns], Mapping[str, NDArray[Any]]], columns: Columns) -> dict[str, NDArray[Any]]:
        """`apply` to all rows, a few at a time. Gives fewer at a time when memory is short."""
        import torch

        total, at, parts = len(next(iter(columns.values()))), 0, []
        while at < total:
            size = min(self.rows, total - at)
            started = perf_counter()
            try:
                parts.append(apply({name: values[at : at + size] for name, values in columns.items()}))
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
                self.rows, self._settled = max(size // 2, 1), True
                continue
            self.took(size, perf_counter() - started)
            at += size
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def took(self, rows: int, seconds: float) -> None:
        """Learn from so many rows; fewer than were to be given say nothing."""
        if self._settled or rows < self.rows:
            return
        self._rates.append(rows / seconds)
        if len(self._rates) < self.TRIES:
            return
        rate, self._rates = max(self._rates), []
        if rate > self._best[0] * self.FASTER:
            self._best, self._in_vain = (rate, self.rows), 0
        else:
            self._in_vain += 1
        if self._in_vain == self.TRIES or self.rows == self.MOST:
            self.rows, self._settled = self._best[1], True
        else:
            self.rows *= 2


def zeros(inputs: Sequence[Column]) -> dict[str, NDArray[Any] | Ragged]:
    """Two rows of zeros, of one element each where rows differ in length, to see what a network makes of rows."""
    return {column.name: _zeros(column) for column in inputs}


def _zeros(column: Column) -> NDArray[Any] | Ragged:
    if column.kind == "list":
        return Ragged.of([np.zeros((1, *column.shape), dtype(column))] * 2)
    return np.zeros((2, *column.shape), dtype(column))


def check_inputs(schema: spark.StructType, found: ModelBundle, where: str, also: Sequence[str] = ()) -> None:
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


def array(batch: pa.RecordBatch, column: Column) -> NDArray[Any] | Ragged:
    """One column of a Spark Arrow batch as (rows, *shape), or Ragged where rows differ in length or are bytes.

    Raises TrainyardError for another shape, and for nulls.
    """
    values = batch.column(column.name)
    rows, nulls = len(values), values.null_count
    if pa.types.is_binary(values.type):
        return Ragged.of([np.frombuffer(row or b"", np.uint8) for row in values.to_pylist()])
    lists = values
    while pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        values = values.flatten()
        nulls += values.null_count
    if nulls:
        raise TrainyardError(f"column {column.name!r} has nulls, which a network cannot take; fill or drop them.")
    flat = values.to_numpy(zero_copy_only=False)
    if column.kind == "list":
        return _ragged(np.diff(lists.offsets.to_numpy()), flat, column)
    if flat.size != rows * int(np.prod(column.shape)):
        raise TrainyardError(
            f"column {column.name!r} has {flat.size / max(rows, 1):g} elements in a row; the model takes shape "
            f"{list(column.shape)}."
        )
    return flat.reshape(rows, *column.shape).astype(dtype(column), copy=False)  # type: ignore[no-any-return]


def _ragged(lengths: NDArray[Any], flat: NDArray[Any], column: Column) -> Ragged:
    size = math.prod(column.shape)
    if (lengths % size).any():
        raise TrainyardError(
            f"column {column.name!r} has a row of {lengths[(lengths % size).argmax()]} values; the model takes any "
            f"number of elements of shape {list(column.shape)}, {size} values each."
        )
    lengths = lengths.astype(np.int64) // size
    values = flat.reshape(-1, *column.shape).astype(dtype(column), copy=False)
    return Ragged(values, np.cumsum(lengths) - lengths, lengths)


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
