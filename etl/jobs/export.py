"""The export job: source, prepare, split and shuffle, batches; in one pass over the source."""

from __future__ import annotations

import hashlib
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
from trainyard.etl.datasource import arrow_batches, columns
from trainyard.etl.datasource import source as dataset_format
from trainyard.etl.datasource.options import WriteOptions
from trainyard.etl.jobs import sources, splits
from trainyard.etl.jobs.functions import UserFunction
from trainyard.schemas import manifest
from trainyard.schemas.events import EventLog
from trainyard.schemas.manifest import Provenance
from trainyard.schemas.specs.export import ExportSpec


def run(
    spark: SparkSession, spec: ExportSpec, events: EventLog, change: Callable[[DataFrame], DataFrame] | None = None
) -> dict[str, Any]:
    """Export the batches of `spec`, with a last `change` of the rows; what became of them, in figures.

    The number of shards defaults to the cluster's cores. Raises TrainyardError for all that the
    user can put right; a dataset that was there before is then still the current one.
    """
    dataset_format.register(spark)
    with events.span("import prepare"):
        prepare = UserFunction.load("prepare", spec.prepare)
    with events.span("read source", source=sources.describe(spec.source)):
        source = sources.read(spark, spec.source)
    with events.span("prepare", prepare=spec.prepare):
        frame = prepare(spark, source, spec.prepare_params)
        frame = change(frame) if change else frame
        check(frame, spec)
    shards = spec.shards or spark.sparkContext.defaultParallelism
    parted = splits.assign(frame, spec.splits, spec.split_by, spec.stratify, spec.seed)
    shuffled = splits.shuffle(parted, shards, spec.seed)
    with events.span("write dataset", shards=shards), arrow_batches.batches_of(spec.rows_per_batch, spark):
        _write(shuffled, spec, _provenance(spark, spec, prepare.module))
    made = manifest.read_current(spec.dataset).partitions[spec.partition or ""]
    found = manifest.read_version(spec.dataset, made.version)
    for warning in found.provenance.warnings:
        print(f"WARNING: {warning}", flush=True)
    return found.summary(spec.dataset)


def check(frame: DataFrame, spec: ExportSpec) -> None:
    """Refuse, before any row is read, columns that are missing or have no place in a batch."""
    named = [("expect", column) for column in spec.expect]
    for option, name in [("split_by", spec.split_by), ("stratify", spec.stratify), *named]:
        if name is not None and name not in frame.columns:
            raise columns.missing(name, option, frame.columns)
    options = WriteOptions(path=spec.dataset, shapes=tuple(spec.shapes.items()), variable_length=spec.variable_length)
    columns.fields(frame.schema, options)


def _write(frame: DataFrame, spec: ExportSpec, provenance: Provenance) -> None:
    options = {
        "splitColumn": splits.SPLIT,
        "splits": ",".join(spec.splits),
        "shapes": json.dumps(spec.shapes),
        "variableLength": ",".join(spec.variable_length),
        "rowsPerBatch": str(spec.rows_per_batch),
        "provenance": provenance.model_dump_json(),
        "expect": json.dumps({name: expected.model_dump() for name, expected in spec.expect.items()}),
    }
    if spec.partition is not None:
        options["partition"] = spec.partition
    if spec.drift:
        options["drift"] = spec.drift.model_dump_json()
    dataset_format.save(frame, spec.dataset, "overwrite", options)


def _provenance(spark: SparkSession, spec: ExportSpec, module: ModuleType) -> Provenance:
    return Provenance(
        application=spark.sparkContext.applicationId,
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
        source=sources.describe(spec.source),
        prepare=spec.prepare,
        code_hash=hashlib.sha256(inspect.getsource(module).encode()).hexdigest(),
        fingerprint=spec.fingerprint,
        versions={
            "trainyard": trainyard.__version__,
            "python": platform.python_version(),
            "pyspark": pyspark.__version__,
            "pyarrow": pa.__version__,
        },
    )
