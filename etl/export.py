"""The export job: source, prepare, split and shuffle, batches; in one pass over the source."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession

import trainyard
from etl import batches, columns, sources, splits
from etl.options import WriteOptions
from trainyard.contract import manifest
from trainyard.contract.errors import TrainyardError, reason
from trainyard.contract.events import EventLog
from trainyard.contract.manifest import BatchManifest, Provenance
from trainyard.contract.spec import ExportSpec

_ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"

Prepare = Callable[..., Any]


def run(spark: SparkSession, spec: ExportSpec, events: EventLog) -> dict[str, Any]:
    """Export the batches of `spec`; what became of them, in figures.

    The number of shards defaults to the cluster's cores. Raises TrainyardError for all that the
    user can put right; a dataset that was there before is then still the current one.
    """
    batches.register(spark)
    with events.span("import prepare"):
        module, function = load_prepare(spec.prepare)
    with events.span("read source", source=sources.describe(spec.source)):
        source = sources.read(spark, spec.source)
    with events.span("prepare", prepare=spec.prepare):
        frame = call_prepare(function, spec, spark, source)
        check(frame, spec)
    shards = spec.shards or spark.sparkContext.defaultParallelism
    parted = splits.assign(frame, spec.splits, spec.split_by, spec.stratify, spec.seed)
    shuffled = splits.shuffle(parted, shards, spec.seed)
    with events.span("write batches", shards=shards):
        before = spark.conf.get(_ROWS_PER_BATCH)
        spark.conf.set(_ROWS_PER_BATCH, str(spec.rows_per_batch))
        try:
            _write(shuffled, spec, _provenance(spark, spec, module))
        finally:
            spark.conf.set(_ROWS_PER_BATCH, before)
    return summary(spec.batches, manifest.current(spec.batches))


def load_prepare(path: str) -> tuple[ModuleType, Prepare]:
    """The module and function that `module:name` names. Raises TrainyardError when there is none."""
    name, attribute = path.split(":")
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise TrainyardError(
            f"prepare={path!r} cannot be imported: {type(error).__name__}: {error}. It must be importable on the "
            "cluster: put the module in the DAG folder, beside the DAG."
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        defined = [name for name, value in vars(module).items() if inspect.isfunction(value) and name[0] != "_"]
        raise TrainyardError(
            f"prepare={path!r}: {name} has no function {attribute!r}; it has {', '.join(defined) or 'none'}."
        )
    return module, function


def call_prepare(function: Prepare, spec: ExportSpec, spark: SparkSession, source: DataFrame) -> DataFrame:
    """What `prepare` makes of the source. Raises TrainyardError when that is no DataFrame."""
    try:
        inspect.signature(function).bind(spark, source, **spec.prepare_params)
    except TypeError as error:
        raise TrainyardError(
            f"prepare={spec.prepare!r} cannot be called as prepare(spark, source, **prepare_params) with "
            f"prepare_params={spec.prepare_params}: {error}."
        ) from error
    frame = function(spark, source, **spec.prepare_params)
    if not isinstance(frame, DataFrame):
        raise TrainyardError(f"prepare={spec.prepare!r} returned {type(frame).__name__}; it must return a DataFrame.")
    return frame


def check(frame: DataFrame, spec: ExportSpec) -> None:
    """Refuse, before any row is read, columns that are missing or have no place in a batch."""
    for option, name in (("split_by", spec.split_by), ("stratify", spec.stratify)):
        if name is not None and name not in frame.columns:
            raise columns.missing(name, option, frame.columns)
    options = WriteOptions(path=spec.batches, shapes=tuple(spec.shapes.items()), lists=spec.lists)
    columns.fields(frame.schema, options)


def summary(uri: str, dataset: BatchManifest) -> dict[str, Any]:
    """A dataset in figures, as an XCom carries them."""
    shards = [shard for split in dataset.splits.values() for shard in split.shards]
    return {
        "uri": uri,
        "content_hash": dataset.content_hash,
        "version": dataset.number,
        "rows": dataset.rows,
        "splits": {name: split.rows for name, split in dataset.splits.items()},
        "shards": len(shards),
        "record_batches": sum(len(shard.batches) for shard in shards),
        "bytes": sum(shard.bytes for shard in shards),
    }


def _write(frame: DataFrame, spec: ExportSpec, provenance: Provenance) -> None:
    options = {
        "splitColumn": splits.SPLIT,
        "splits": ",".join(spec.splits),
        "shapes": json.dumps(spec.shapes),
        "lists": ",".join(spec.lists),
        "rowsPerBatch": str(spec.rows_per_batch),
        "provenance": provenance.model_dump_json(),
    }
    try:
        frame.write.format(batches.FORMAT).mode("overwrite").options(**options).save(spec.batches)
    except Exception as error:
        message = reason(error)
        if message is None:
            raise
        raise TrainyardError(message) from error


def _provenance(spark: SparkSession, spec: ExportSpec, module: ModuleType) -> Provenance:
    return Provenance(
        application=spark.sparkContext.applicationId,
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
        source=sources.describe(spec.source),
        prepare=spec.prepare,
        code_hash=hashlib.sha256(inspect.getsource(module).encode()).hexdigest(),
        versions={
            "trainyard": trainyard.__version__,
            "python": platform.python_version(),
            "pyspark": pyspark.__version__,
            "pyarrow": pa.__version__,
        },
    )
