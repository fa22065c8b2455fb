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

from etl import export, scoring
from etl.predict import arrow_column
from etl.scoring import Columns
from trainer import bundle as trained
from trainyard.contract import bundle as bundles
from trainyard.contract.errors import TrainyardError
from trainyard.contract.events import EventLog
from trainyard.contract.spec import FeaturizeSpec


def run(spark: SparkSession, spec: FeaturizeSpec, events: EventLog) -> dict[str, Any]:
    """As the export of `spec`, with features in the place of the model's inputs."""
    change = partial(features, model=spec.model, layer=spec.layer, name=spec.features)
    return export.run(spark, spec, events, change)


def features(frame: DataFrame, model: str, layer: str, name: str = "features") -> DataFrame:
    """In the place of the columns that the model takes, the column `name`: what its `layer` makes of them.

    The layer's output is flattened. Raises TrainyardError for a layer that is not there, and for rows that the model
    does not take.
    """
    found = bundles.current(model)
    scoring.check_inputs(frame.schema, found, "what is featurized")
    document = found.to_json()
    trained.restore(model, found).features(layer, scoring.zeros(found.inputs))
    inputs = {column.name for column in found.inputs}
    kept = [field for field in frame.schema.fields if field.name not in inputs]
    if name in [field.name for field in kept]:
        raise TrainyardError(f"features={name!r}: the rows have such a column already; give the features another name.")
    schema = StructType([*kept, StructField(name, ArrayType(FloatType(), containsNull=False), nullable=False)])
    as_arrow = to_arrow_schema(schema)

    def apply(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in parts:
            if part.num_rows:
                of_layer = partial(_of_layer, scoring.model(model, document), layer)
                rows = {column.name: scoring.array(part, column) for column in found.inputs}
                made = scoring.pace(model, document, None).over(of_layer, rows)["features"]
                values = [part.column(field.name) for field in kept] + [arrow_column(made)]
                yield from pa.Table.from_arrays(values, names=as_arrow.names).cast(as_arrow).to_batches()

    return frame.mapInArrow(apply, schema)


def _of_layer(model: trained.Model, layer: str, rows: Columns) -> dict[str, NDArray[Any]]:
    return {"features": model.features(layer, rows).float().cpu().numpy()}
