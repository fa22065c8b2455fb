"""Turn rows into the batch that a model takes: tensors of the types and shapes that its training had."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column
from trainyard.trainer.data.reading import decoding, jagged
from trainyard.trainer.data.reading.blocks import dtype
from trainyard.trainer.data.reading.decoding import Decode
from trainyard.trainer.data.reading.jagged import Jagged
from trainyard.trainer.model.recipe import Recipe

Values = NDArray[Any] | Tensor | Jagged | Sequence[NDArray[Any]] | Sequence[bytes]
"""One column of some rows."""


DecodedRows = dict[tuple[str, Decode], Tensor]
"""Some rows of columns that models share, by the name of the column and its decoder, if that has a hash."""


def build_batch(
    recipe: Recipe, inputs: Sequence[Column], columns: Mapping[str, Values], decoded: DecodedRows | None = None
) -> dict[str, Tensor]:
    """Return the batch of some rows, as the network of a recipe takes it.

    Args:
        recipe: The recipe.
        inputs: The feature columns, as they are in a batch.
        columns: Their values, as for `TrainedModel.output`.
        decoded: See `TrainedModel.output`.

    Raises:
        TrainyardError: See `TrainedModel.output`.
    """
    batch: dict[str, Tensor] = {}
    for column in inputs:
        batch |= _to_tensors(recipe, column, columns, decoded)
    rows = {column.name: batch[column.name].size(0) for column in inputs}
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in rows.items())
        raise TrainyardError(f"the columns have different numbers of rows: {counts}. Pass as many rows of each.")
    return batch


def _to_tensors(
    recipe: Recipe, column: Column, columns: Mapping[str, Values], decoded: DecodedRows | None
) -> dict[str, Tensor]:
    if column.name not in columns:
        raise TrainyardError(
            f"the model takes column {column.name!r} ({column.type}, shape {list(column.shape)}), "
            f"but the rows have {', '.join(columns)}."
        )
    values: Any = columns[column.name]
    if not hasattr(values, "__len__") or isinstance(values, str | bytes) or getattr(values, "ndim", 1) == 0:
        described = "a single number" if hasattr(values, "ndim") else f"of type {type(values).__name__}"
        raise TrainyardError(
            f"column {column.name!r} is {described}; pass an array or a list with a value for each row."
        )
    if column.name in recipe.decode and not (isinstance(values, Tensor) or _is_decoded(values)):
        values = _decode(column.name, recipe.decode[column.name], values, decoded)
    if column.kind == "list":
        rows = values if isinstance(values, Jagged) else _to_jagged(values, column)
        if rows.values.shape[1:] != column.shape:
            raise _shape_error(column, rows.values.shape[1:])
        return jagged.to_tensors(column.name, replace(rows, values=cast(rows.values, column)), recipe.sequences)
    if isinstance(values, Jagged):
        raise TrainyardError(
            f"the model takes column {column.name!r} with shape {list(column.shape)}, but its rows are bytes, or "
            "differ in length."
        )
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(_to_numbers(values, column))
    if tensor[:1].numel() not in (math.prod(column.shape), 0):
        advice = " Return one shape from its decode= and its augment=." if column.name in recipe.augment else ""
        raise _shape_error(column, tuple(tensor.shape[1:]), advice)
    return {column.name: _convert(tensor, column).reshape(-1, *column.shape)}


def _decode(name: str, decode: Decode, values: Any, decoded: DecodedRows | None) -> Tensor:
    """Return the rows of a column, decoded; a copy of them where models share them, of which one may change it."""
    if decoded is None or not _has_hash(decode):
        return decoding.decode_rows(name, decode, values)
    if (name, decode) not in decoded:
        decoded[name, decode] = decoding.decode_rows(name, decode, values)
    return decoded[name, decode].clone()


def _has_hash(decode: Decode) -> bool:
    """Return whether a decoder has a hash; an object of a class that defines equality alone has none."""
    try:
        hash(decode)
    except TypeError:
        return False
    return True


def _is_decoded(values: Values) -> bool:
    """Return whether rows of a decoded column are numbers already; this does not matter if there are none."""
    return len(values) == 0 or (isinstance(values, np.ndarray) and values.dtype != object)


def _to_jagged(rows: Any, column: Column) -> Jagged:
    """Return rows of a variable-length column, of which there may be none, and each of which may be empty."""
    arrays = [np.empty((0, *column.shape), dtype(column))]
    for row in rows:
        array = _to_numbers(row, column)
        if array.size and array.shape[1:] != column.shape:
            raise _shape_error(column, array.shape[1:])
        arrays.append(array.reshape(-1, *column.shape))
    return Jagged.from_rows(arrays)[1:]


def _to_numbers(values: Any, column: Column) -> NDArray[Any]:
    """Return a copy of values as an array of numbers; without any, of the type of the column."""
    try:
        array = np.array(values)
        if array.dtype == object:
            array = np.array(array.tolist())
    except ValueError as error:  # numpy's for lists of different lengths
        of = _describe_elements(column)
        raise TrainyardError(
            f"the model takes column {column.name!r} with {of}shape {list(column.shape)}, but its rows differ in shape."
        ) from error
    if array.size and array.dtype.kind not in "biuf":
        raise TrainyardError(
            f"the model takes column {column.name!r} with numbers ({column.type}), but its rows hold values of type "
            f"{array.dtype}."
        )
    return array if array.size else array.astype(dtype(column))


def _convert(values: Tensor, column: Column) -> Tensor:
    """Return the values of a column in the type that they have in training."""
    if values.dtype == torch.from_numpy(np.empty(0, dtype(column))).dtype:
        return values
    if values.dtype == torch.bfloat16:  # which numpy does not have
        values = values.float()
    return torch.from_numpy(cast(values.detach().cpu().numpy(), column))


def cast(numbers: NDArray[Any], column: Column) -> NDArray[Any]:
    """Return numbers in the type of a column.

    Raises:
        TrainyardError: The type cannot represent a number. Only numbers of floating-point types are rounded.
    """
    target = dtype(column)
    with np.errstate(over="ignore", invalid="ignore"):
        converted = numbers.astype(target, copy=False)
    if np.can_cast(numbers.dtype, target):
        return converted
    fits = np.isfinite(converted) | ~np.isfinite(numbers) if target.kind == "f" else converted == numbers
    if not fits.all():
        raise TrainyardError(
            f"column {column.name!r} has the value {numbers[~fits][0]}, which its type in the training, {column.type}, "
            "cannot represent. Prepare it as for the export, or train the model on a dataset with a wider type."
        )
    return converted


def _describe_elements(column: Column) -> str:
    return "elements of " if column.kind == "list" else ""


def _shape_error(column: Column, shape: tuple[int, ...], advice: str = "") -> TrainyardError:
    of = _describe_elements(column)
    return TrainyardError(
        f"the model takes column {column.name!r} with {of}shape {list(column.shape)}, "
        f"but its rows have {of}shape {list(shape)}.{advice}"
    )
