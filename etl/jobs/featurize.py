"""The featurize job: an export in which the output of a network's layer replaces the network's inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, FloatType, StructField, StructType

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import to_arrow
from trainyard.etl.jobs import export
from trainyard.etl.jobs.predict import to_arrow_column
from trainyard.etl.jobs.preload import preload
from trainyard.etl.scoring import inputs, worker_model
from trainyard.etl.scoring.inputs import Columns
from trainyard.etl.scoring.scan import map_batches
from trainyard.schemas import model_artifact
from trainyard.schemas.events import EventLog
from trainyard.schemas.specs.export import FeaturizeSpec
from trainyard.trainer.model.trained_model import TrainedModel, restore_model


def run(spark: SparkSession, spec: FeaturizeSpec, events: EventLog) -> dict[str, Any]:
    """Export a dataset of features; return its summary. Arguments and errors are those of the export job."""
    preload(spark)
    transform = partial(features, model=spec.model, layer=spec.layer, name=spec.features, weights=spec.weights)
    return export.run(spark, spec, events, transform)


def features(
    frame: DataFrame, model: str, layer: str, name: str = "features", weights: Mapping[str, str] | None = None
) -> DataFrame:
    """Replace the columns that a model takes with the output of one of its layers.

    Args:
        frame: The rows, with the model's inputs among their columns.
        model: The URI of the model.
        layer: The name of a submodule of its network.
        name: The name of the new column.
        weights: The sha256 of the weights of the model, by its URI. By default its newest.

    Returns:
        The other columns of `frame`, and `name`: the layer's output, flattened to an array of floats.

    Raises:
        TrainyardError: The layer does not exist, an input of the model is missing in the rows or has another type, or
            `name` is one of their columns.
    """
    artifact = model_artifact.read(model, weights or {})
    inputs.check_inputs(frame.schema, artifact, "the rows to featurize")
    document = artifact.to_json()
    restore_model(model, artifact).features(layer, inputs.build_zero_rows(artifact.inputs))
    replaced = {column.name for column in artifact.inputs}
    kept = [field for field in frame.schema.fields if field.name not in replaced]
    if name in [field.name for field in kept]:
        raise TrainyardError(f"features={name!r} is already a column of the rows; choose another name.")
    schema = StructType([*kept, StructField(name, ArrayType(FloatType(), containsNull=False), nullable=False)])
    arrow_schema = to_arrow(schema)

    def apply(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                apply_layer = partial(_apply_layer, worker_model.load_model(model, document), layer)
                rows = {column.name: inputs.to_array(batch, column) for column in artifact.inputs}
                output = worker_model.get_tuner(model, document, None).apply(apply_layer, rows)["features"]
                values = [batch.column(field.name) for field in kept] + [to_arrow_column(output)]
                yield from pa.Table.from_arrays(values, names=arrow_schema.names).cast(arrow_schema).to_batches()

    return map_batches(frame, frame.columns, apply, schema)


def _apply_layer(model: TrainedModel, layer: str, rows: Columns) -> dict[str, NDArray[Any]]:
    return {"features": model.features(layer, rows).float().cpu().numpy()}
