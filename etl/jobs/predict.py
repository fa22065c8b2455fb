"""The predict job: keys and outputs, all of them or none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from trainyard.errors import TrainyardError
from trainyard.etl.datasource import arrow_batches
from trainyard.etl.jobs import destinations, sources
from trainyard.etl.jobs.functions import UserFunction
from trainyard.etl.scoring import inputs, worker_model
from trainyard.schemas import model_artifact as bundles
from trainyard.schemas.events import EventLog
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.trainer.model.trained_model import TrainedModel, restore_model


def run(spark: SparkSession, spec: PredictSpec, events: EventLog) -> dict[str, Any]:
    """Predict for what `prepare` makes of the source, and write what `postprocess` makes of that to the output."""
    found = bundles.read_current(spec.model)
    with events.span("read source"):
        frame = sources.read(spark, spec.source)
        if spec.prepare:
            frame = UserFunction.load("prepare", spec.prepare)(spark, frame, spec.prepare_params)
    finish = UserFunction.load("postprocess", spec.postprocess) if spec.postprocess else None

    def predicted(rows: DataFrame) -> DataFrame:
        keys = dict.fromkeys([*spec.keys, *([spec.partition_by] if spec.partition_by else [])])
        scored = predict(rows, spec.model, tuple(keys), spec.rows_per_batch)
        return finish(spark, scored, spec.postprocess_params) if finish else scored

    rows_at_once = spec.rows_per_batch or arrow_batches.fitting(found.inputs)
    with events.span("predict"), arrow_batches.batches_of(rows_at_once, spark):
        written = destinations.write(spark, spec, found.weights_sha256, frame, predicted)
    return {"uri": spec.output, "model": spec.model, "weights_sha256": found.weights_sha256, **written}


def predict(
    frame: DataFrame, model: str, keys: Sequence[str] | None = None, rows_per_batch: int | None = None
) -> DataFrame:
    """The outputs that the recipe's `predict` names, beside `keys` of each row, or all its columns.

    How many rows the network is given at once is found by trying, unless it is said. Raises TrainyardError when the
    frame lacks a column, or has it as something else than the model was trained on.
    """
    keys = frame.columns if keys is None else keys
    found = bundles.read_current(model)
    inputs.check_inputs(frame.schema, found, "what is predicted for", keys)
    document = found.to_json()
    outputs = output_schema(restore_model(model, found))
    if twice := [name for name in outputs.names if name in keys]:
        raise TrainyardError(
            f"column {twice[0]!r} is both a key and an output of the model; rename it in the rows, or in the recipe's "
            "predict, or leave it out of keys=."
        )
    schema = StructType([*(frame.schema[key] for key in keys), *outputs.fields])
    as_arrow = to_arrow_schema(schema)

    def apply(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            if part.num_rows:
                applied = worker_model.model(model, document)
                pace = worker_model.pace(model, document, rows_per_batch)
                columns = pace.over(applied.predict, {c.name: inputs.array(part, c) for c in found.inputs})
                values = [part.column(key) for key in keys] + [arrow_column(columns[f.name]) for f in outputs.fields]
                yield from pa.Table.from_arrays(values, names=as_arrow.names).cast(as_arrow).to_batches()

    used = dict.fromkeys([*keys, *(column.name for column in found.inputs)])
    return frame.select(*used).mapInArrow(apply, schema)


def output_schema(model: TrainedModel) -> StructType:
    """The columns that the model's predictions have, found by predicting for two rows of zeros."""
    columns = model.predict(inputs.zeros(model.artifact.inputs))
    return StructType([StructField(name, from_arrow_type(arrow_column(v).type)) for name, v in columns.items()])


def arrow_column(values: np.ndarray[Any, Any]) -> pa.Array:
    """An array (rows, ...) as an Arrow column: numbers, or lists of the flattened rest."""
    if values.ndim == 1:
        return pa.array(values)
    flat = values.reshape(len(values), -1)
    offsets = np.arange(len(values) + 1, dtype=np.int32) * flat.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat.ravel()))
