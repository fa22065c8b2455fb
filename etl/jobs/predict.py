"""The predict job: apply a model to a source, and write keys and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import to_arrow
from trainyard.etl.jobs import arrow_batches, destinations, sources
from trainyard.etl.jobs.functions import UserFunction
from trainyard.etl.jobs.preload import preload
from trainyard.etl.scoring import inputs, worker_model
from trainyard.etl.scoring.scan import DatasetScan, Rows, map_batches
from trainyard.schemas import model_artifact, versions
from trainyard.schemas.events import EventLog
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.specs.source import FORMAT
from trainyard.trainer.model.trained_model import (
    PREDICTION,
    TrainedModel,
    check_prediction,
    restore_model,
    to_array,
)


def run(spark: SparkSession, spec: PredictSpec, events: EventLog) -> dict[str, Any]:
    """Read and prepare the source, predict, postprocess and write; return the output's URI and figures.

    Raises:
        TrainyardError: The user can correct what is wrong. The output's previous predictions are unchanged then.
    """
    preload(spark)
    destinations.check_storage(spec)
    destinations.check_output(spec)
    artifact = model_artifact.read(spec.model, spec.weights)
    rows_per_batch = spec.rows_per_batch or arrow_batches.choose_batch_rows(artifact.inputs)
    with events.span("read source"):
        files = destinations.list_source(spec)
        rows = _read(spark, spec, rows_per_batch)
    postprocess = UserFunction.load("postprocess", spec.postprocess) if spec.postprocess else None

    def build_predictions(rows: Rows) -> DataFrame:
        keys = dict.fromkeys([*spec.keys, *([spec.partition_by] if spec.partition_by else [])])
        predictions = predict(rows, spec.model, tuple(keys), spec.rows_per_batch, spec.weights)
        return postprocess(spark, predictions, spec.postprocess_params) if postprocess else predictions

    with (
        _lease(rows, spark.sparkContext.applicationId),
        events.span("predict"),
        arrow_batches.limit_batch_rows(rows_per_batch, spark),
    ):
        figures = destinations.write(spark, spec, artifact.weights_sha256, rows, build_predictions, files)
    return {"uri": spec.output, "model": spec.model, "weights_sha256": artifact.weights_sha256, **figures}


def _read(spark: SparkSession, spec: PredictSpec, rows_per_batch: int) -> Rows:
    """Return the rows to predict for: a scan if they are those of a dataset, as a DataFrame all others."""
    if spec.source.format == FORMAT and spec.source.path and not spec.prepare and not spec.partition_by:
        return DatasetScan(spark, spec.source.path, spec.source.options, rows_per_batch)
    frame = sources.read(spark, spec.source)
    if spec.prepare:
        frame = UserFunction.load("prepare", spec.prepare)(spark, frame, spec.prepare_params)
    return frame


def _lease(rows: Rows, application: str) -> AbstractContextManager[None]:
    """Return a context in which the version of a dataset that is scanned does not expire."""
    if isinstance(rows, DatasetScan):
        return versions.lease(rows.dataset, rows.manifest.number, application)
    return nullcontext()


def predict(
    rows: Rows,
    model: str,
    keys: Sequence[str] | None = None,
    rows_per_batch: int | None = None,
    weights: Mapping[str, str] | None = None,
) -> DataFrame:
    """Apply a model to rows.

    Args:
        rows: A DataFrame, or a scan of a dataset, with the model's inputs among the columns.
        model: The URI of the model.
        keys: The columns to keep; by default all.
        rows_per_batch: The number of rows that the network is applied to at a time. By default it is measured.
        weights: The sha256 of the weights of the model, by its URI. By default its newest.

    Returns:
        The columns `keys`, and those that the recipe's `predict` returns.

    Raises:
        TrainyardError: A column is missing or has another type than the model was trained on, an output has the name
            of a key, or the recipe's `predict` does not return columns.
    """
    keys = rows.schema.names if keys is None else keys
    artifact = model_artifact.read(model, weights or {})
    inputs.check_inputs(rows.schema, artifact, "the rows to predict for", keys)
    document = artifact.to_json()
    outputs = build_output_schema(restore_model(model, artifact))
    names = {name.lower() for name in outputs.names}
    if conflicts := [key for key in keys if key.lower() in names]:
        raise TrainyardError(
            f"column {conflicts[0]!r} is both a key and an output of the model; rename it in the rows, or in the "
            "recipe's predict, or remove it from keys=. Spark ignores the case of names."
        )
    schema = StructType([*(rows.schema[key] for key in keys), *outputs.fields])
    arrow_schema = to_arrow(schema)

    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                trained = worker_model.load_model(model, document)
                tuner = worker_model.get_tuner(model, document, rows_per_batch)
                columns = {column.name: inputs.to_array(batch, column) for column in artifact.inputs}
                predicted = tuner.apply(trained.predict, columns)
                values = [batch.column(key) for key in keys]
                values += [to_arrow_column(predicted[field.name]) for field in outputs.fields]
                yield from pa.Table.from_arrays(values, names=arrow_schema.names).cast(arrow_schema).to_batches()

    used = dict.fromkeys([*keys, *(column.name for column in artifact.inputs)])
    return map_batches(rows, list(used), apply, schema)


def build_output_schema(model: TrainedModel) -> StructType:
    """Return the columns of the model's predictions, as they are for two rows of zeros.

    Raises:
        TrainyardError: The recipe's `predict` does not return tensors of rows by name, or their shape depends on the
            length of the rows, or one of them is complex or uint64.
    """
    with torch.inference_mode():
        samples = [model.recipe.predict(model.output(rows)) for rows in inputs.build_samples(model.artifact.inputs)]
    for predicted in samples:
        check_prediction(predicted, model.artifact.recipe)
        _check_rows(predicted, model.artifact.recipe)
    for name, tensor in samples[0].items():
        if tensor.shape != samples[-1][name].shape:
            raise TrainyardError(
                f"predict of the recipe {model.artifact.recipe!r} returns a value for each element of a "
                f"variable-length row in {name!r}, but a column has the same number in each row; return one value, or "
                "pad to a fixed length."
            )
    columns = {name: to_array(name, tensor) for name, tensor in samples[0].items()}
    return StructType(
        [StructField(name, from_arrow_type(to_arrow_column(values).type)) for name, values in columns.items()]
    )


def _check_rows(predicted: Mapping[str, torch.Tensor], recipe: str) -> None:
    for name, value in predicted.items():
        if value.shape[:1] != (2,):
            raise TrainyardError(
                f"predict of the recipe {recipe!r} returns a tensor of shape {list(value.shape)} in {name!r} for 2 "
                f"rows; {PREDICTION}."
            )


def to_arrow_column(values: np.ndarray[Any, Any]) -> pa.Array:
    """Return an array (rows, ...) as an Arrow column of numbers, or of lists of the flattened other dimensions."""
    if values.ndim == 1:
        return pa.array(values)
    flat = values.reshape(len(values), -1)
    offsets = np.arange(len(values) + 1, dtype=np.int32) * flat.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat.ravel()))
