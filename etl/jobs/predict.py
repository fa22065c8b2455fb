"""The predict job: apply a model to a source, and write keys and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import to_arrow
from trainyard.etl.fitting import encoding
from trainyard.etl.jobs import destinations
from trainyard.etl.jobs.exporting import sizes, sources
from trainyard.etl.jobs.functions import UserFunction
from trainyard.etl.jobs.preload import preload
from trainyard.etl.scoring import inputs
from trainyard.etl.scoring.scan import DatasetScan, Rows, get_session, map_batches
from trainyard.etl.scoring.worker_call import call_in_worker
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import versions
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.results import PredictionsResult
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.specs.source import FORMAT

_VALUES = "__values_of_"
"""The prefix of the columns with the values of categories, which are among the keys."""


def run(spark: SparkSession, spec: PredictSpec, events: EventLog) -> PredictionsResult:
    """Read and prepare the source, predict, postprocess and write.

    Raises:
        TrainyardError: The user can correct what is wrong. The output's previous predictions are unchanged then.
    """
    preload(spark)
    destinations.check_storage(spec)
    destinations.check_catalog(spec, spark.conf.getAll)
    destinations.check_output(spec)
    uri, artifact = model_artifact.find(spec.model)
    with events.span(Phase.READ_SOURCE):
        files = destinations.list_source(spec)
        rows, warnings = _read(spark, spec, uri, artifact)
    chosen = spec.keys or inputs.list_others(rows.schema, artifact)
    keys = tuple(dict.fromkeys([*chosen, *([spec.partition_by] if spec.partition_by else [])]))
    rows_per_batch = spec.rows_per_batch or _choose_batch_rows(rows, artifact.inputs, keys)
    if isinstance(rows, DatasetScan):
        rows.batch_rows = rows_per_batch
    postprocess = UserFunction.load("postprocess", spec.postprocess) if spec.postprocess else None

    def build_predictions(rows: Rows) -> DataFrame:
        predictions = predict(rows, spec.model, keys, spec.rows_per_batch)
        return postprocess(spark, predictions, spec.postprocess_params) if postprocess else predictions

    with (
        _lease(rows, spark.sparkContext.applicationId),
        events.span(Phase.PREDICT),
        sizes.limit_batch_rows(rows_per_batch, spark),
    ):
        result = destinations.write(spark, spec, artifact.weights_sha256, rows, build_predictions, files)
    if not result.rows and not result.unchanged:
        warnings.append("there are no predictions: the source, prepare or postprocess has no rows")
    for warning in warnings:
        print(f"WARNING: {warning}", flush=True)
    return result.model_copy(update={"warnings": tuple(warnings)})


def _read(spark: SparkSession, spec: PredictSpec, model: str, artifact: ModelArtifact) -> tuple[Rows, list[str]]:
    """Return the rows to predict for, a scan if they are those of a dataset, and what Spark leaves out of a source."""
    source = spec.source
    if source and source.format == FORMAT and source.path and not spec.prepare and not spec.partition_by:
        return DatasetScan(spark, source.path, source.options), []
    frames, warnings = sources.read_all(spark, spec)
    if spec.prepare:
        prepare, state = UserFunction.load("prepare", spec.prepare), artifact.read_fitted(model)
        return prepare(spark, frames, spec.prepare_params | prepare.take_state(state)), warnings
    assert isinstance(frames, DataFrame), "several sources have prepare"
    return frames, warnings


def _choose_batch_rows(rows: Rows, inputs: Sequence[Column], keys: Sequence[str]) -> int:
    """Return the number of rows with a model's inputs and the columns to keep that make an Arrow batch."""
    names = {column.name for column in inputs}
    if isinstance(rows, DatasetScan):
        columns = [column for column in rows.manifest.columns if column.name in names.union(keys)]
        return sizes.choose_batch_rows(columns, rows.manifest)
    kept = [field for field in rows.schema.fields if field.name in set(keys) - names]
    return sizes.choose_batch_rows([*inputs, *sizes.describe_fields(kept)])


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
) -> DataFrame:
    """Apply a model to rows.

    Args:
        rows: A DataFrame, or a scan of a dataset, with the model's inputs among the columns. Columns of categories have
            their values, or the indices of a dataset that was fitted as the model's was.
        model: The URI of the model; `MODEL@1a2b` is the version whose weights have a sha256 that begins so.
        keys: The columns to keep; by default all.
        rows_per_batch: The number of rows that the network is applied to at a time. By default it is measured.

    Returns:
        The columns `keys`, and those that the recipe's `predict` returns.

    Raises:
        TrainyardError: A column is missing or has another type than the model was trained on, an output has the name
            of a key, or the recipe's `predict` does not return columns.
    """
    keys = rows.schema.names if keys is None else keys
    uri, artifact = model_artifact.find(model)
    rows, given = _encode(rows, artifact, uri), rows.schema
    inputs.check_inputs(rows.schema, artifact, "the rows to predict for", keys)
    document = artifact.to_json()
    outputs, row_bytes = call_in_worker(get_session(rows), partial(_describe_predictions, uri, document))
    names = {name.lower() for name in outputs.names}
    if conflicts := [key for key in keys if key.lower() in names]:
        raise TrainyardError(
            f"column {conflicts[0]!r} is both a key and an output of the model; rename it in the rows, or in the "
            "recipe's predict, or choose the columns by keys=. Spark ignores the case of names."
        )
    schema = StructType([*(given[key] for key in keys), *outputs.fields])
    kept = [f"{_VALUES}{key}" if f"{_VALUES}{key}" in rows.schema.names else key for key in keys]
    apply = partial(
        _predict_batches, uri=uri, document=document, keys=tuple(kept), schema=to_arrow(schema),
        rows_per_batch=rows_per_batch, max_rows=rows_per_batch or sizes.fit_rows(row_bytes),
    )  # fmt: skip
    used = dict.fromkeys([*kept, *(column.name for column in artifact.inputs)])
    return map_batches(rows, list(used), apply, schema)


def _encode(rows: Rows, artifact: ModelArtifact, model: str) -> Rows:
    """Return rows with indices in the model's columns of categories, and their values in further columns."""
    vocabularies = artifact.read_fitted(model).vocabularies
    of_inputs = {column.name: vocabularies[column.name] for column in artifact.inputs if column.name in vocabularies}
    return encoding.encode_rows(rows, of_inputs, "the rows to predict for", keep=_VALUES)


def _describe_predictions(model: str, document: str) -> tuple[StructType, int]:
    from trainyard.etl.scoring.outputs import describe_predictions  # imports torch, as only workers do

    return describe_predictions(model, document)


def _predict_batches(batches: Iterable[pa.RecordBatch], **options: Any) -> Iterator[pa.RecordBatch]:
    from trainyard.etl.scoring.outputs import predict_batches

    return predict_batches(batches, **options)
