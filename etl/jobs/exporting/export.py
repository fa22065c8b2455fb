"""The export job: read a source, prepare, split and shuffle its rows, and write them as a dataset."""

from __future__ import annotations

import hashlib
import inspect
import json
import platform
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, Observation, SparkSession

import trainyard
from trainyard.errors import TrainyardError
from trainyard.etl.datasource import columns
from trainyard.etl.datasource import source as datasource
from trainyard.etl.datasource.options import WriteOptions
from trainyard.etl.fitting import encoding, fitting, vocabulary
from trainyard.etl.jobs.exporting import sizes, snapshots, sources, split_quality, splits, uniqueness, value_quality
from trainyard.etl.jobs.functions import UserFunction
from trainyard.schemas.datasets import fingerprint, fitted_state, manifest
from trainyard.schemas.datasets.fitted_state import STATE, FittedState
from trainyard.schemas.datasets.manifest import Provenance
from trainyard.schemas.results import DatasetResult
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.source import Expectation


def run(
    spark: SparkSession,
    spec: ExportSpec,
    events: EventLog,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    model: str = "",
) -> DatasetResult:
    """Export a dataset in one pass over the source, and one more for what is fitted on the training rows.

    Each key that is expected to be unique takes another one, over its columns, and so do all columns of categories and
    labels of which something else is expected.

    With `stratify` the prepared rows are stored on disk meanwhile.

    The number of shards defaults to the number of the application's cores; with dynamic allocation to that of the
    executors that the source is worth.

    Args:
        spark: The session.
        spec: The job.
        events: The log for the spans of its steps.
        transform: A function that is applied to the shuffled DataFrame, and keeps its rows and their order. Splits and
            order come from the columns before it, so that they do not depend on what it rounds.
        model: The sha256 of the weights that `transform` applies.

    Returns:
        The counts of the dataset's version, and its warnings.

    Raises:
        TrainyardError: The user can correct what is wrong. The current version of the dataset is unchanged then.
    """
    with events.span(Phase.IMPORT_PREPARE):
        prepare = UserFunction.load("prepare", spec.prepare)
    with events.span(Phase.READ_SOURCE, source=sources.describe_all(spec)):
        spec, found = snapshots.pin_all(spark, spec)
        spec = spec.model_copy(update={"fingerprint": fingerprint.complete(spec.fingerprint, found)})
        if spec.skip_unchanged and (unchanged := _find_unchanged(spec)):
            return unchanged
        frames, left_out = sources.read_all(spark, spec)
    state = fitting.find_state(spec)
    with events.span(Phase.PREPARE, prepare=spec.prepare):
        own = _fit_own(spark, prepare, frames, spec, state) if spec.fit else {}
        frame = prepare(spark, frames, spec.prepare_params | own)
        prepared = transform(frame) if transform else frame
        check_columns(prepared, spec)
        vocabulary.check_columns(prepared.schema, spec.categories, spec.labels)
    shards = spec.shards or _choose_shards(spark, frame)
    split, counts = spec.split_column or splits.SPLIT, Observation()
    split_by = spec.split_by if spec.fractions else None
    with splits.compute_once(frame) if spec.stratify else nullcontext(frame) as rows:
        violated: tuple[str, ...] = ()
        if any(expected.key is not None for expected in spec.expect.values()):
            with events.span(Phase.FIND_DUPLICATES):
                violated = uniqueness.check_unique(spec.dataset, rows, spec.expect)
        assigned = _assign_splits(rows, spec)
        indexed = {name: expected for name, expected in spec.expect.items() if name in spec.indexed}
        if any(expected.has_statistics for expected in indexed.values()):
            with events.span(Phase.CHECK_VALUES):
                violated += value_quality.check_values(spec.dataset, assigned, split, indexed)
        if state is None and spec.fit_options:
            with events.span(Phase.FIT):
                training_rows = fitting.select_training_rows(assigned, split, spec)
                state = fitting.fit_values(
                    training_rows, spec.categories, spec.labels, spec.fit_options, own.get(STATE)
                )
        shuffled = splits.shuffle(assigned, shards, spec.seed, split, counts, split_by)
        written = transform(shuffled) if transform else shuffled
        unseen = Observation()
        if state:
            fitted_state.save(spec.dataset, state)
            written = encoding.encode(written, state.vocabularies, unseen, keeps_order=True, nullable=spec.nullable)
        with events.span(Phase.WRITE_DATASET, shards=shards), sizes.limit_batch_rows(spec.rows_per_batch, spark):
            versions = {name: snapshot.version for name, snapshot in found.items() if snapshot}
            provenance = _build_provenance(spark, spec, versions, prepare.module, model, violated)
            _write(written, spec, split, provenance, state)
    partition = manifest.read_current(spec.dataset).partitions[spec.partition or ""]
    version = manifest.read_version(spec.dataset, partition.version)
    result = DatasetResult.from_manifest(spec.dataset, version, spec.partition)
    deviations = split_quality.find_warnings(
        spec.dataset, version, spec.partition or "", spec.fractions, split_by, counts.get
    )
    update: dict[str, Any] = {"warnings": (*result.warnings, *left_out, *deviations)}
    if spec.categories:
        update["unseen"] = {name: (unseen.get[name] or 0) / partition.rows for name in spec.categories}
    result = result.model_copy(update=update)
    for warning in result.warnings:
        print(f"WARNING: {warning}", flush=True)
    return result


def _find_unchanged(spec: ExportSpec) -> DatasetResult | None:
    """Return the dataset that exists, if it is the one that the export would write."""
    version, reason = fingerprint.find_unchanged(spec.dataset, spec.partition, spec.fingerprint)
    print(f"{'Skipping the export' if version else 'Exporting'} to {spec.dataset}: {reason}", flush=True)
    if version is None:
        return None
    return DatasetResult.from_manifest(spec.dataset, version, spec.partition).model_copy(update={"reused": True})


def _fit_own(
    spark: SparkSession,
    prepare: UserFunction,
    frames: DataFrame | Mapping[str, DataFrame],
    spec: ExportSpec,
    state: FittedState | None,
) -> dict[str, Any]:
    """Return what the user's `fit` returned, as the argument of `prepare`; it is called unless there is a `state`.

    Raises:
        TrainyardError: `prepare` does not take it, or `fit` returns what JSON does not have.
    """
    assert spec.fit
    if not prepare.takes(STATE):
        raise TrainyardError(
            f"fit={spec.fit!r}: what it returns is an argument of prepare, but prepare={spec.prepare!r} has no "
            f"parameter {STATE!r}. Write `def {prepare.name}(spark, source, {STATE}=None)`, which is None while "
            "fit has not been called."
        )
    if state is None:
        rows = prepare(spark, frames, spec.prepare_params | {STATE: None})
        check_columns(rows, spec)
        training_rows = fitting.select_training_rows(
            _assign_splits(rows, spec), spec.split_column or splits.SPLIT, spec
        )
        returned = UserFunction.load("fit", spec.fit).call(spark, training_rows, spec.fit_params)
        return {STATE: fitting.to_state(spec.fit, returned)}
    return {STATE: state.state}


def _choose_shards(spark: SparkSession, frame: DataFrame) -> int:
    conf, cores = dict(spark.sparkContext.getConf().getAll()), int(spark.sparkContext.defaultParallelism)
    if conf.get("spark.dynamicAllocation.enabled", "").lower() != "true":
        return cores
    estimate = frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()
    return sizes.choose_shard_count(cores, conf, int(estimate.toString()))


def check_columns(frame: DataFrame, spec: ExportSpec) -> None:
    """Check the columns of a DataFrame before its rows are read.

    Raises:
        TrainyardError: An option names a missing column, `expect` names the one of the splits, which is not written, or
            a dataset cannot store the name or type of a column.
    """
    splits.check_names(frame.columns)
    references = [("split_by", spec.split_by), ("splits", spec.split_column), ("stratify", spec.stratify)]
    references += [("expect", name) for name in spec.expect]
    for option, name in references:
        if name is not None and name not in frame.columns:
            raise columns.missing_column_error(name, option, frame.columns)
    if spec.split_column in spec.expect:
        raise _split_column_error(spec.split_column, spec.expect[spec.split_column])
    if spec.split_times and spec.split_by:
        splits.check_time_column(frame, spec.split_by)
    options = WriteOptions(
        path=spec.dataset, split_column=spec.split_column, shapes=tuple(spec.shapes.items()),
        variable_length=spec.variable_length, nullable=tuple(n for n in spec.nullable if n not in spec.labels),
    )  # fmt: skip
    schema = vocabulary.index_schema(frame.schema, spec.indexed)
    columns.build_fields(schema, options, variable_length_option="variable_length")


def _split_column_error(name: str, expected: Expectation) -> TrainyardError:
    """Return the error for an expectation of the column of splits; as a part of a key, it is checked."""
    instead = "remove it from expect"
    if expected.unique_with:
        first, *others = expected.unique_with
        expect = {first: {"unique_with": [*others, name]}}
        instead = f"write {expect=}"
    return TrainyardError(
        f"expect names the column {name!r}, which splits names too, so that the dataset does not have it; {instead}."
    )


def _assign_splits(frame: DataFrame, spec: ExportSpec) -> DataFrame:
    if spec.split_column:
        return frame
    if spec.split_times and spec.split_by:
        return splits.assign_by_time(frame, spec.split_by, spec.split_times)
    return splits.assign(frame, spec.fractions, spec.split_by, spec.stratify, spec.seed)


def _write(frame: DataFrame, spec: ExportSpec, split: str, provenance: Provenance, state: FittedState | None) -> None:
    declared = splits.names_by_time(spec.split_times) if spec.split_times else spec.fractions
    options = {
        "splitColumn": split,
        "splits": ",".join(declared),
        "shapes": json.dumps(spec.shapes),
        "variableLength": json.dumps(spec.variable_length),
        "nullable": json.dumps(spec.nullable),
        "rowsPerBatch": str(spec.rows_per_batch),
        "provenance": provenance.model_dump_json(),
        "expect": json.dumps(
            {name: _without_key(expected) for name, expected in spec.expect.items() if name not in spec.indexed}
        ),
    }
    if spec.expect_rows:
        options["expectRows"] = spec.expect_rows.model_dump_json()
    if spec.partition is not None:
        options["partition"] = spec.partition
    if state:
        options["fitted"] = state.reference.model_dump_json()
    if spec.drift:
        options["drift"] = spec.drift.model_dump_json()
    datasource.save(frame, spec.dataset, "overwrite", options)


def _without_key(expected: Expectation) -> dict[str, Any]:
    """Return an expectation without what `check_unique` has checked already, as JSON."""
    return expected.model_dump(exclude={"unique", "unique_with"})


def _build_provenance(
    spark: SparkSession,
    spec: ExportSpec,
    versions: dict[str, str],
    module: ModuleType,
    model: str,
    warnings: tuple[str, ...],
) -> Provenance:
    return Provenance(
        application=spark.sparkContext.applicationId,
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
        source=sources.describe_all(spec),
        source_versions=versions,
        prepare=spec.prepare,
        code_hash=hashlib.sha256(inspect.getsource(module).encode()).hexdigest(),
        fingerprint=spec.fingerprint,
        model=model,
        warnings=warnings,
        versions={
            "trainyard": trainyard.__version__,
            "python": platform.python_version(),
            "pyspark": pyspark.__version__,
            "pyarrow": pa.__version__,
        },
    )
