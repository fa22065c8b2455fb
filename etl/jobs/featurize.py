"""The featurize job: an export in which the output of a network's layer replaces the network's inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, FloatType, StructField, StructType

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import to_arrow
from trainyard.etl.fitting import encoding
from trainyard.etl.jobs.exporting import export, sizes
from trainyard.etl.jobs.functions import UserFunction
from trainyard.etl.jobs.preload import preload
from trainyard.etl.scoring import inputs
from trainyard.etl.scoring.scan import map_batches
from trainyard.etl.scoring.worker_call import call_in_worker
from trainyard.schemas import model_artifact
from trainyard.schemas.results import DatasetResult
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.specs.export import FeaturizeSpec
from trainyard.schemas.version_suffix import add_version


def run(spark: SparkSession, spec: FeaturizeSpec, events: EventLog) -> DatasetResult:
    """Export a dataset of features. Arguments and errors are those of the export job."""
    preload(spark)
    uri, artifact = model_artifact.find(spec.model)
    sha256, state = artifact.weights_sha256, artifact.read_fitted(uri)
    prepare_params = spec.prepare_params | UserFunction.load("prepare", spec.prepare).take_state(state)
    spec = spec.model_copy(update={"prepare_params": prepare_params})
    transform = partial(features, model=add_version(uri, sha256), layer=spec.layer, name=spec.features)
    return export.run(spark, spec, events, transform, sha256)


def features(frame: DataFrame, model: str, layer: str, name: str = "features") -> DataFrame:
    """Replace the columns that a model takes with the output of one of its layers.

    Args:
        frame: The rows, with the model's inputs among their columns.
        model: The URI of the model; `MODEL@1a2b` is the version whose weights have a sha256 that begins so.
        layer: The name of a submodule of its network.
        name: The name of the new column.

    Returns:
        The other columns of `frame`, and `name`: the layer's output, flattened to an array of floats.

    Raises:
        TrainyardError: The layer does not exist, an input of the model is missing in the rows or has another type, or
            `name` is one of their columns.
    """
    uri, artifact = model_artifact.find(model)
    vocabularies = artifact.read_fitted(uri).vocabularies
    of_inputs = {column.name: vocabularies[column.name] for column in artifact.inputs if column.name in vocabularies}
    frame = encoding.encode_rows(frame, of_inputs, "the rows to featurize", keeps_order=True)
    inputs.check_inputs(frame.schema, artifact, "the rows to featurize")
    replaced = {column.name for column in artifact.inputs}
    kept = [field for field in frame.schema.fields if field.name not in replaced]
    if name in [field.name for field in kept]:
        raise TrainyardError(f"features={name!r} is already a column of the rows; choose another name.")
    document = artifact.to_json()
    row_bytes = call_in_worker(frame.sparkSession, partial(_measure_layer, uri, document, layer))
    schema = StructType([*kept, StructField(name, ArrayType(FloatType(), containsNull=False), nullable=False)])
    apply = partial(
        _featurize_batches, uri=uri, document=document, layer=layer, kept=[field.name for field in kept],
        schema=to_arrow(schema), max_rows=sizes.fit_rows(row_bytes),
    )  # fmt: skip
    return map_batches(frame, frame.columns, apply, schema)


def _measure_layer(model: str, document: str, layer: str) -> int:
    from trainyard.etl.scoring.outputs import measure_layer  # imports torch, as only workers do

    return measure_layer(model, document, layer)


def _featurize_batches(batches: Iterable[pa.RecordBatch], **options: Any) -> Iterator[pa.RecordBatch]:
    from trainyard.etl.scoring.outputs import featurize_batches

    return featurize_batches(batches, **options)
