"""Where predictions go: Parquet, Parquet by partitions, a dataset, or a table; whole, or not at all."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.etl.datasource import source
from trainyard.schemas import manifest
from trainyard.schemas.specs.predict import PredictSpec

Predicted = Callable[[DataFrame], DataFrame]

_FINISHED = "_SUCCESS"
_MADE_BY = "_PREDICTED"
_NULL = "__HIVE_DEFAULT_PARTITION__"


def write(
    spark: SparkSession, spec: PredictSpec, weights: str, frame: DataFrame, predicted: Predicted
) -> dict[str, Any]:
    """Write what is `predicted` for the rows of `frame`; how many rows there are, and which columns."""
    if spec.partition_by:
        return _by_partitions(spark, spec, weights, frame, predicted)
    return _WRITERS[spec.output_format](spark, spec, predicted(frame))


def _parquet(spark: SparkSession, spec: PredictSpec, found: DataFrame) -> dict[str, Any]:
    staged = _beside(spec.output)
    try:
        found.write.parquet(staged)
        rows = spark.read.parquet(staged).count()
        replace(staged, spec.output)
    finally:
        storage.remove(staged)
    return {"rows": rows, "columns": found.columns}


def _dataset(spark: SparkSession, spec: PredictSpec, found: DataFrame) -> dict[str, Any]:
    source.register(spark)
    source.save(found, spec.output, "overwrite", {})
    made = manifest.read_current(spec.output)
    return {"rows": made.rows, "columns": found.columns, "version": made.number}


def _table(spark: SparkSession, spec: PredictSpec, found: DataFrame) -> dict[str, Any]:
    """Computed whole before the table is touched: what is left then is a copy."""
    staged = storage.join(spec.task_key.directory, f"staged-{uuid.uuid4().hex}")
    try:
        found.write.parquet(staged)
        copy = spark.read.parquet(staged)
        copy.write.mode("overwrite").saveAsTable(spec.output)
        return {"rows": copy.count(), "columns": copy.columns}
    finally:
        storage.remove(staged)


_WRITERS = {"parquet": _parquet, "trainyard": _dataset, "table": _table}


def _by_partitions(
    spark: SparkSession, spec: PredictSpec, weights: str, frame: DataFrame, predicted: Predicted
) -> dict[str, Any]:
    """Only partitions that are new, or were made by other weights or of other files; each is replaced whole."""
    column = spec.partition_by
    assert column is not None
    if column not in frame.columns:
        raise TrainyardError(f"partition_by={column!r}: the rows have no such column; they have {frame.columns}.")
    _refuse_other_things(spec.output, [n for n in storage.list_names(spec.output) if not n.startswith(f"{column}=")])
    texts = f.coalesce(f.col(column).cast("string"), f.lit(_NULL))
    there = sorted(row[0] for row in frame.select(texts).distinct().collect())
    origins = {value: _origin(spec, weights, column, value) for value in there}
    made = _made(spec.output, column)
    new = [value for value in there if made.get(value) != origins[value]]
    if not new:
        return {"rows": 0, "columns": [], "partitions": [], "unchanged": len(there)}
    found = predicted(frame.where(texts.isin(new)))
    staged = _beside(spec.output)
    try:
        found.write.partitionBy(column).parquet(staged)
        rows = spark.read.parquet(staged).count()
        for name in [n for n in storage.list_names(staged) if n.startswith(f"{column}=")]:
            origin = origins[unquote(name.partition("=")[2])]
            storage.replace(storage.join(staged, name, _MADE_BY), json.dumps(origin).encode())
            _swap(storage.join(staged, name), storage.join(spec.output, name))
    finally:
        storage.remove(staged)
    return {"rows": rows, "columns": found.columns, "partitions": new, "unchanged": len(there) - len(new)}


def _origin(spec: PredictSpec, weights: str, column: str, value: str) -> dict[str, str]:
    """What the predictions for a partition follow from: the weights, and its files where they lie in one folder."""
    folder = storage.join(spec.source.path, f"{column}={value}") if spec.source.path else ""
    try:
        files = storage.list_files(folder) if folder and storage.exists(folder) else []
    except ValueError:  # it is not known when files changed
        return {"weights_sha256": weights, "files": uuid.uuid4().hex}
    return {"weights_sha256": weights, "files": hashlib.sha256(json.dumps(files).encode()).hexdigest()}


def _made(output: str, column: str) -> dict[str, dict[str, str]]:
    """The origin of each partition that is there."""
    found = {}
    for name in storage.list_names(output):
        marker = storage.join(output, name, _MADE_BY)
        if name.startswith(f"{column}=") and storage.exists(marker):
            found[unquote(name.partition("=")[2])] = json.loads(storage.read(marker))
    return found


def replace(staged: str, output: str) -> None:
    """Put the finished directory `staged` in the place of predictions at `output`; those are there until then."""
    if storage.exists(output) and not storage.exists(storage.join(output, _FINISHED)):
        _refuse_other_things(output, storage.list_names(output))
    _swap(staged, output)


def _refuse_other_things(output: str, names: list[str]) -> None:
    if names:
        raise TrainyardError(
            f"{output} exists and holds no finished predictions, but {names[0]}; choose another place for output=."
        )


def _swap(staged: str, output: str) -> None:
    old = _beside(output)
    if storage.exists(output):
        storage.move(output, old)
    storage.move(staged, output)
    storage.remove(old)


def _beside(output: str) -> str:
    """A place beside `output`, hidden from Spark."""
    parent, _, name = output.rstrip("/").rpartition("/")
    return f"{parent}/_{name}.{uuid.uuid4().hex}"
