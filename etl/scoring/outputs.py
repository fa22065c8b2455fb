"""Apply a model to record batches in a Python worker, and tell the driver what columns that gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from trainyard.errors import TrainyardError
from trainyard.etl.scoring import arrays, worker_model
from trainyard.etl.scoring.arrays import Columns
from trainyard.trainer.model.artifacts.trained_model import PREDICTION, TrainedModel, check_prediction, to_array

ROWS = 256
"""The rows that a network is applied to at a time for features: the last bits of its outputs depend on their number."""


def describe_predictions(uri: str, document: str) -> tuple[StructType, int]:
    """Return the columns of a model's predictions, as they are for two rows of zeros, and the bytes of a row.

    Args:
        uri: The URI of the model.
        document: The JSON of its `ModelArtifact`.

    Raises:
        TrainyardError: The recipe's `predict` does not return tensors of rows by name, or their shape depends on the
            length of the rows, or one of them is complex or uint64.
    """
    model = worker_model.load_model(uri, document)
    recipe = model.artifact.recipe
    with torch.no_grad():
        samples = [
            model.recipe.predict_columns(model.output(rows)) for rows in arrays.build_samples(model.artifact.inputs)
        ]
    for predicted in samples:
        check_prediction(predicted, recipe)
        _check_rows(predicted, recipe)
    for name, tensor in samples[0].items():
        if tensor.shape != samples[-1][name].shape:
            raise TrainyardError(
                f"predict of the recipe {recipe!r} returns a value for each element of a variable-length row in "
                f"{name!r}, but a column has the same number in each row; return one value, or pad to a fixed length."
            )
    columns = model.name_classes({name: to_array(name, tensor) for name, tensor in samples[0].items()})
    fields = [StructField(name, from_arrow_type(_to_arrow_column(values).type)) for name, values in columns.items()]
    return StructType(fields), sum(values[:1].nbytes for values in columns.values())


def predict_batches(
    batches: Iterable[pa.RecordBatch],
    uri: str,
    document: str,
    keys: Sequence[str],
    schema: pa.Schema,
    rows_per_batch: int | None,
    max_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `keys` of record batches, and behind them the predictions for their rows.

    Args:
        batches: The record batches of a task.
        uri: The URI of the model.
        document: The JSON of its `ModelArtifact`.
        keys: The columns that are kept.
        schema: The schema of the result: the keys, and the columns of `describe_predictions`.
        rows_per_batch: The number of rows that the network is applied to at a time. By default it is measured.
        max_rows: The largest number of rows of a result.
    """
    return _add_columns(batches, uri, document, keys, schema, rows_per_batch, max_rows, TrainedModel.predict)


def measure_layer(uri: str, document: str, layer: str) -> int:
    """Return the bytes of a layer's output for a row. Raises TrainyardError if it has none."""
    model = worker_model.load_model(uri, document)
    rows = arrays.build_zero_rows(model.artifact.inputs)
    return sum(values[0].nbytes for values in _apply_layer(model, rows, layer, "").values())


def featurize_batches(
    batches: Iterable[pa.RecordBatch],
    uri: str,
    document: str,
    layer: str,
    kept: Sequence[str],
    schema: pa.Schema,
    max_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `kept` of record batches, and behind them the output of a layer for their rows.

    Args:
        batches: The record batches of a task.
        uri: The URI of the model.
        document: The JSON of its `ModelArtifact`.
        layer: The name of a submodule.
        kept: The columns that are kept.
        schema: The schema of the result.
        max_rows: The largest number of rows of a result.
    """
    apply = partial(_apply_layer, layer=layer, name=schema.names[-1])
    return _add_columns(batches, uri, document, kept, schema, min(ROWS, max_rows), max_rows, apply)


def _add_columns(
    batches: Iterable[pa.RecordBatch],
    uri: str,
    document: str,
    kept: Sequence[str],
    schema: pa.Schema,
    rows_per_batch: int | None,
    max_rows: int,
    apply: Callable[[TrainedModel, Columns], dict[str, NDArray[Any]]],
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `kept` of record batches, and behind them what `apply` returns for their rows."""
    for batch in batches:
        for start in range(0, batch.num_rows, max_rows):
            part = batch.slice(start, max_rows)
            trained = worker_model.load_model(uri, document)
            tuner = worker_model.get_tuner(((uri, document),), rows_per_batch)
            columns = {column.name: arrays.to_array(part, column) for column in trained.artifact.inputs}
            output = tuner.apply(partial(apply, trained), columns)
            values = [*(part.column(name) for name in kept)]
            values += [_to_arrow_column(output[name]) for name in schema.names[len(kept) :]]
            yield from pa.Table.from_arrays(values, names=schema.names).cast(schema).to_batches()


def _apply_layer(model: TrainedModel, rows: Columns, layer: str, name: str) -> dict[str, NDArray[Any]]:
    return {name: model.features(layer, rows).float().cpu().numpy()}


def _check_rows(predicted: Mapping[str, torch.Tensor], recipe: str) -> None:
    for name, value in predicted.items():
        if value.shape[:1] != (2,):
            raise TrainyardError(
                f"predict of the recipe {recipe!r} returns a tensor of shape {list(value.shape)} in {name!r} for 2 "
                f"rows; {PREDICTION}."
            )


def _to_arrow_column(values: NDArray[Any]) -> pa.Array:
    """Return an array (rows, ...) as an Arrow column of numbers, or of lists of the flattened other dimensions."""
    if values.ndim == 1:
        return pa.array(values)
    flat = values.reshape(len(values), -1)
    offsets = np.arange(len(values) + 1, dtype=np.int32) * flat.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat.ravel()))
