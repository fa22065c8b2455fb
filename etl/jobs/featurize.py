"""The featurize job: an export of what a layer of a network makes of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, FloatType, StructField, StructType

from trainyard.errors import TrainyardError
from trainyard.etl.jobs import export
from trainyard.etl.jobs.predict import arrow_column
from trainyard.etl.scoring import inputs as scoring
from trainyard.etl.scoring import worker_model
from trainyard.etl.scoring.inputs import Columns
from trainyard.schemas import model_artifact as bundles
from trainyard.schemas.events import EventLog
from trainyard.schemas.specs.export import FeaturizeSpec
from trainyard.trainer.model.trained_model import TrainedModel, restore_model


def run(spark: SparkSession, spec: FeaturizeSpec, events: EventLog) -> dict[str, Any]:
    """As the export of `spec`, with features in the place of the model's inputs."""
    change = partial(features, model=spec.model, layer=spec.layer, name=spec.features)
    return export.run(spark, spec, events, change)


def features(frame: DataFrame, model: str, layer: str, name: str = "features") -> DataFrame:
    """In the place of the columns that the model takes, the column `name`: what its `layer` makes of them.

    The layer's output is flattened. Raises TrainyardError for a layer that is not there, and for rows that the model
    does not take.
    """
    found = bundles.read_current(model)
    scoring.check_inputs(frame.schema, found, "what is featurized")
    document = found.to_json()
    restore_model(model, found).features(layer, scoring.zeros(found.inputs))
    inputs = {column.name for column in found.inputs}
    kept = [field for field in frame.schema.fields if field.name not in inputs]
    if name in [field.name for field in kept]:
        raise TrainyardError(f"features={name!r}: the rows have such a column already; give the features another name.")
    schema = StructType([*kept, StructField(name, ArrayType(FloatType(), containsNull=False), nullable=False)])
    as_arrow = to_arrow_schema(schema)

    def apply(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            if part.num_rows:
                of_layer = partial(_of_layer, worker_model.model(model, document), layer)
                rows = {column.name: scoring.array(part, column) for column in found.inputs}
                made = worker_model.pace(model, document, None).over(of_layer, rows)["features"]
                values = [part.column(field.name) for field in kept] + [arrow_column(made)]
                yield from pa.Table.from_arrays(values, names=as_arrow.names).cast(as_arrow).to_batches()

    return frame.mapInArrow(apply, schema)


def _of_layer(model: TrainedModel, layer: str, rows: Columns) -> dict[str, NDArray[Any]]:
    return {"features": model.features(layer, rows).float().cpu().numpy()}
