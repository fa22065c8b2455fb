"""The predict job: keys and outputs as Parquet, all of them or none."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from etl import arrow, scoring, sources
from etl.prepare import Prepare
from trainer import bundle as trained
from trainyard.contract import bundle as bundles
from trainyard.contract import storage
from trainyard.contract.errors import TrainyardError
from trainyard.contract.events import EventLog
from trainyard.contract.spec import PredictSpec


def run(spark: SparkSession, spec: PredictSpec, events: EventLog) -> dict[str, Any]:
    """Predict for what `prepare` makes of the source; `spec.output` is replaced in one step."""
    with events.span("read source"):
        frame = sources.read(spark, spec.source)
        if spec.prepare:
            frame = Prepare.load(spec.prepare)(spark, frame, spec.prepare_params)
    predicted = predict(frame, spec.model, spec.keys)
    staged = f"{spec.output.rstrip('/')}.{uuid.uuid4().hex}"
    try:
        with events.span("predict"), arrow.batches_of(spec.rows_per_batch, spark):
            predicted.write.parquet(staged)
        publish(staged, spec.output)
    finally:
        storage.remove(staged)
    rows = spark.read.parquet(spec.output).count()
    return {"uri": spec.output, "rows": rows, "columns": predicted.columns, "model": spec.model}


def predict(frame: DataFrame, model: str, keys: Sequence[str]) -> DataFrame:
    """`keys` of each row beside the outputs that the recipe's `predict` names."""
    found = bundles.current(model)
    scoring.check_inputs(frame.columns, found, "what is predicted for", also=tuple(keys))
    document = found.to_json()
    outputs = output_schema(trained.load(model))
    schema = StructType([*(frame.schema[key] for key in keys), *outputs.fields])
    arrow = to_arrow_schema(schema)

    def apply(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            if part.num_rows:
                applied = scoring.model(model, document)
                columns = applied.predict({c.name: scoring.array(part, c) for c in found.inputs})
                values = [part.column(key) for key in keys] + [arrow_column(columns[f.name]) for f in outputs.fields]
                table = pa.Table.from_arrays(values, names=arrow.names).cast(arrow)
                yield from table.to_batches()

    used = dict.fromkeys([*keys, *(column.name for column in found.inputs)])
    return frame.select(*used).mapInArrow(apply, schema)


def output_schema(model: trained.Model) -> StructType:
    """The columns that the model's predictions have, found by predicting for two rows of zeros."""
    zeros = {c.name: np.zeros((2, *c.shape), _number(c.type)) for c in model.bundle.inputs}
    columns = model.predict(zeros)
    return StructType([StructField(name, from_arrow_type(arrow_column(v).type)) for name, v in columns.items()])


def arrow_column(values: np.ndarray[Any, Any]) -> pa.Array:
    """An array (rows, ...) as an Arrow column: numbers, or lists of the flattened rest."""
    if values.ndim == 1:
        return pa.array(values)
    flat = values.reshape(len(values), -1)
    offsets = np.arange(len(values) + 1, dtype=np.int32) * flat.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat.ravel()))


def publish(staged: str, output: str) -> None:
    """Put the finished directory `staged` in the place of `output`; the old one is there until then."""
    old = f"{output.rstrip('/')}.replaced-{uuid.uuid4().hex}"
    if storage.exists(output):
        if not storage.exists(storage.join(output, "_SUCCESS")):
            raise TrainyardError(
                f"{output} exists and holds no finished predictions; choose another place for output=."
            )
        storage.move(output, old)
    storage.move(staged, output)
    storage.remove(old)


def _number(type: str) -> str:
    return {"float": "float32", "double": "float64"}.get(type, type)
