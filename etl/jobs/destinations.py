"""Write predictions to Parquet, partitioned Parquet, a dataset or a table.

All predictions are computed in a staging directory first, so that the previous ones are unchanged if a model fails.
No file system replaces a directory in one step: the previous one is renamed to `.NAME.replaced`, then the new one to
`NAME`. If a process ends between the two, the next run renames the previous one back.

A directory of Parquet files that has a file `_PREDICTED` holds predictions: no other one is replaced.
"""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, MapType, StructType

from trainyard.errors import TrainyardError, summarize
from trainyard.etl.datasource import source
from trainyard.etl.datasource.columns import get_column
from trainyard.etl.jobs.exporting import source_partitions, sources
from trainyard.etl.jobs.exporting.source_partitions import SourceFile
from trainyard.etl.scoring.scan import Rows, select
from trainyard.files import storage, uris
from trainyard.schemas.datasets import manifest
from trainyard.schemas.datasets.manifest import Provenance
from trainyard.schemas.results import PredictionsResult
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.version_suffix import split_version

PredictFunction = Callable[[Rows], DataFrame]

_MARK = "_PREDICTED"
_REPLACED = ".replaced"
_EMPTY = ".empty"
_DAY = 24 * 60 * 60


def check_storage(spec: PredictSpec) -> None:
    """Check that the output can appear in one step, before anything is computed.

    Raises:
        TrainyardError: Predictions would be Parquet on a storage that does not rename a directory in one step.
    """
    if spec.output_format == "parquet" and not storage.renames_directories(spec.output):
        raise TrainyardError(
            f"output={spec.output!r} is on a storage that copies a directory file by file, so readers would see a part "
            "of the predictions. Set output_format='trainyard', which one file commits, or use a URI of hdfs:// or "
            "file://."
        )


def check_catalog(spec: PredictSpec, conf: Mapping[str, str]) -> None:
    """Check that a table outlasts the application, before anything is computed.

    Args:
        spec: The job.
        conf: The settings of the session.

    Raises:
        TrainyardError: The catalog is in the memory of the application.
    """
    first, *others = spec.output.split(".")
    default = conf.get("spark.sql.defaultCatalog", "spark_catalog")
    catalog = first if others and f"spark.sql.catalog.{first}" in conf else default
    is_kept = f"spark.sql.catalog.{catalog}" in conf or conf.get("spark.sql.catalogImplementation") == "hive"
    if spec.output_format == "table" and not is_kept:
        raise TrainyardError(
            f"output={spec.output!r}, output_format='table': Spark has no catalog that outlasts the application, so "
            "the table would be lost with it. Set conf={'spark.sql.catalogImplementation': 'hive'} and the metastore, "
            "or a catalog of a table format, or write output_format='parquet'."
        )


def check_output(spec: PredictSpec) -> None:
    """Check that only predictions are replaced, once what a killed run left is removed or complete again.

    Raises:
        TrainyardError: The output is something else than predictions, such as a table that another job wrote.
    """
    if spec.output_format == "trainyard":
        _check_dataset(spec.output)
    elif spec.output_format == "parquet":
        _remove_abandoned(spec.output)
        _recover(spec.output)
        if spec.partition_by:
            _recover_partitions(spec.output, spec.partition_by)
        _check_replaced(spec.output, spec.partition_by)


def list_source(spec: PredictSpec) -> list[SourceFile] | None:
    """Return the files of a source with partitions, to be called before it is read: a later file may not be read.

    Returns:
        The files; none for a source without files, and None if its storage cannot list them with their change times.
    """
    if not spec.partition_by or spec.source is None or not spec.source.path:
        return []
    try:
        return storage.list_files(spec.source.path)
    except FileNotFoundError:
        return None
    except OSError:
        raise
    except Exception as error:  # there is no client or no credentials here; Spark reads the source with its own
        print(f"The files of the source cannot be listed, so all are predicted: {summarize(error)}", flush=True)
        return None


def write(
    spark: SparkSession,
    spec: PredictSpec,
    weights: str,
    rows: Rows,
    predict: PredictFunction,
    files: list[SourceFile] | None,
) -> PredictionsResult:
    """Write the predictions for some rows.

    Args:
        spark: The session.
        spec: The job.
        weights: The sha256 of the model's weights.
        rows: The rows to predict for.
        predict: Returns the predictions for some of these rows.
        files: What `list_source` returned before the rows were read.

    Returns:
        The number of rows written and their columns; further counts by kind of output.

    Raises:
        TrainyardError: The output contains something else than predictions by now, or `partition_by` is not a column
            of single values, or its values were changed by `predict`.
    """
    if spec.partition_by:
        counts = _write_partitions(spark, spec, weights, select(rows, rows.schema.names), predict, files)
    else:
        counts = _WRITERS[spec.output_format](spark, spec, weights, predict(rows))
    uri, _ = split_version(spec.model)
    return PredictionsResult(uri=spec.output, model=uri, weights_sha256=weights, **counts)


def _write_parquet(spark: SparkSession, spec: PredictSpec, weights: str, predictions: DataFrame) -> dict[str, Any]:
    staging = _build_staging_path(spec.output)
    try:
        predictions.write.parquet(staging)
        rows = spark.read.parquet(staging).count()
        storage.replace(uris.join(staging, _MARK), b"")
        _check_replaced(spec.output)
        _swap(staging, spec.output)
    finally:
        storage.remove(staging)
    return {"rows": rows, "columns": predictions.columns}


def _write_dataset(spark: SparkSession, spec: PredictSpec, weights: str, predictions: DataFrame) -> dict[str, Any]:
    source.save(predictions, spec.output, "overwrite", _describe_write(spark, spec, weights), allow_empty=True)
    version = manifest.read_current(spec.output)
    return {"rows": version.rows, "columns": predictions.columns, "version": version.number}


def _describe_write(spark: SparkSession, spec: PredictSpec, weights: str) -> dict[str, str]:
    """Return the options of a write that describe it: a dataset without the weights of a model is not replaced."""
    provenance = Provenance(
        application=spark.sparkContext.applicationId, written_at=datetime.now(UTC).isoformat(timespec="seconds"),
        source=sources.describe_all(spec), model=weights,
    )  # fmt: skip
    return {"provenance": provenance.model_dump_json()}


def _write_table(spark: SparkSession, spec: PredictSpec, weights: str, predictions: DataFrame) -> dict[str, Any]:
    """Stage all predictions before the table is changed, which then only copies them."""
    staging = uris.join(spec.task_key.directory, f"staged-{uuid.uuid4().hex}")
    try:
        predictions.write.parquet(staging)
        copy = spark.read.parquet(staging)
        copy.write.mode("overwrite").saveAsTable(spec.output)
        return {"rows": copy.count(), "columns": copy.columns}
    finally:
        storage.remove(staging)


_WRITERS = {"parquet": _write_parquet, "trainyard": _write_dataset, "table": _write_table}


def _write_partitions(
    spark: SparkSession,
    spec: PredictSpec,
    weights: str,
    frame: DataFrame,
    predict: PredictFunction,
    files: list[SourceFile] | None,
) -> dict[str, Any]:
    """Predict for partitions that are new, or whose predictions come from other weights, files or options."""
    column = spec.partition_by
    assert column is not None
    if column not in frame.columns:
        raise TrainyardError(f"partition_by={column!r} is not a column of the rows; columns are {frame.columns}.")
    data_type = frame.schema[column].dataType
    if isinstance(data_type, ArrayType | MapType | StructType):
        raise TrainyardError(
            f"partition_by={column!r} is a column of type {data_type.simpleString()}; use a column of single values."
        )
    frame = frame.withColumn(column, source_partitions.normalize_zero(get_column(column), data_type))
    values = source_partitions.name_partition(get_column(column))
    partitions = sorted(row[0] for row in frame.select(values).distinct().collect())
    hashes, others = source_partitions.hash_files(spark, files, column, data_type)
    origins = {value: _describe_origin(spec, weights, hashes.get(value, others)) for value in partitions}
    previous = _read_origins(spec.output, column)
    changed = [value for value in partitions if previous.get(value) != origins[value]]
    stale = _find_stale(spec.output, previous, origins)
    if not changed:
        return {"rows": 0, "columns": [], "partitions": [], "unchanged": len(partitions), **stale}
    predictions = predict(frame.where(values.isin(changed)))
    staging = _build_staging_path(spec.output)
    try:
        predictions.write.partitionBy(column).parquet(staging)
        schema = predictions.drop(column).schema
        rows = spark.read.schema(schema).parquet(staging).count()
        folders = {source_partitions.name_folder(column, value): origins[value] for value in changed}
        _complete_partitions(spark, staging, list(folders), schema)
        for folder, origin in folders.items():
            storage.replace(uris.join(staging, folder, _MARK), json.dumps(origin).encode())
            _swap(uris.join(staging, folder), uris.join(spec.output, folder))
    finally:
        storage.remove(staging)
    unchanged = len(partitions) - len(changed)
    return {"rows": rows, "columns": predictions.columns, "partitions": changed, "unchanged": unchanged, **stale}


def _find_stale(output: str, previous: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return, and print, the partitions in the output that have no rows to predict for, if there are any."""
    stale = sorted(set(previous).difference(current))
    if not stale:
        return {}
    print(
        f"WARNING: {output} keeps the predictions of partitions that have no rows now: {', '.join(stale)}. Remove "
        "their folders if they are not wanted.",
        flush=True,
    )
    return {"stale": stale}


def _complete_partitions(spark: SparkSession, staging: str, folders: list[str], schema: StructType) -> None:
    """Add a Parquet file without rows for each partition that has no predictions.

    Raises:
        TrainyardError: There are predictions for another partition.
    """
    staged = {name for name in storage.list_names(staging) if "=" in name}
    if unexpected := staged.difference(folders):
        raise TrainyardError(
            f"postprocess returned rows of the partition {min(unexpected)}, for which nothing was predicted; leave the "
            f"column {min(unexpected).partition('=')[0]!r} unchanged there."
        )
    if missing := [folder for folder in folders if folder not in staged]:
        empty = uris.join(staging, _EMPTY)
        spark.createDataFrame([], schema).write.parquet(empty)
        for folder in missing:
            storage.copy(empty, uris.join(staging, folder))


def _describe_origin(spec: PredictSpec, weights: str, files: str) -> dict[str, Any]:
    """Return what determines a partition's predictions, as JSON restores it."""
    options = {"keys", "prepare", "prepare_params", "postprocess", "postprocess_params"}
    return {"weights_sha256": weights, "files": files, **spec.model_dump(mode="json", include=options)}


def _read_origins(output: str, column: str) -> dict[str, dict[str, Any]]:
    """Return the origin of each partition in the output. Raises TrainyardError if one is not marked."""
    origins = {}
    for name in storage.list_names(output):
        folder = uris.join(output, name)
        if not name.startswith(source_partitions.folder_prefix(column)):
            continue
        if storage.exists(uris.join(folder, _MARK)):
            origins[source_partitions.read_folder(column, name)] = json.loads(storage.read(uris.join(folder, _MARK)))
        else:
            _check_marked(folder, storage.list_names(folder))
    return origins


def _check_dataset(output: str) -> None:
    """Check that the newest version of a dataset, if there is one, has predictions only."""
    newest = manifest.read_latest(output)
    for partition in newest.partitions.values() if newest else ():
        if partition.provenance.code_hash:
            raise TrainyardError(
                f"output={output!r} is a dataset that was exported from {partition.provenance.source}; write another "
                "output=."
            )
        if not partition.provenance.model:
            raise TrainyardError(
                f"output={output!r} is a dataset that no prediction wrote, so it is not replaced; write another "
                "output=. Earlier releases did not mark predictions: remove theirs once."
            )


def _check_replaced(output: str, column: str | None = None) -> None:
    """Check that the output is marked as predictions, or has partitions by a column only; it may be empty."""
    names = storage.list_names(output)
    if not names and storage.exists(output) and storage.list_files(output):
        raise TrainyardError(f"output={output!r} is a file; write another output=.")
    if column is None:
        _check_marked(output, names)
        return
    prefix = source_partitions.folder_prefix(column)
    if others := [name for name in names if not name.startswith(prefix)]:
        raise TrainyardError(
            f"output={output!r} contains {others[-1]!r}, which is no partition of predictions by {column!r}, so "
            "nothing is replaced. Remove this directory, or write another output=."
        )


def _check_marked(directory: str, names: list[str]) -> None:
    if names and _MARK not in names:
        raise TrainyardError(
            f"output={directory!r} contains {names[-1]!r}, but no file {_MARK}, which marks predictions, so nothing is "
            "replaced. Remove this directory, or write another output=. Earlier releases did not mark all predictions: "
            "remove theirs once."
        )


def _swap(staging: str, output: str) -> None:
    """Rename the complete directory `staging` to `output`, and remove the directory that had this name."""
    _recover(output)
    old = _replaced_path(output)
    if storage.exists(output):
        storage.move(output, old)
    try:
        storage.move(staging, output)
    except BaseException:
        with suppress(Exception):  # the error of the rename is raised; otherwise the next run recovers
            _recover(output)
        raise
    storage.remove(old)


def _recover_partitions(output: str, column: str) -> None:
    for name in storage.list_names(output):
        if name.startswith(f".{source_partitions.folder_prefix(column)}") and name.endswith(_REPLACED):
            _recover(uris.join(output, name[1:].removesuffix(_REPLACED)))


def _recover(output: str) -> None:
    """Complete an interrupted swap: rename the previous directory back, or remove it if the new one is there.

    An empty directory is not the new one: others may have created it meanwhile.
    """
    old = _replaced_path(output)
    if not storage.exists(old):
        return
    names = storage.list_names(output)
    if _MARK in names:
        storage.remove(old)
    elif not names:
        with suppress(FileExistsError):  # another run has completed its swap meanwhile
            storage.remove_empty(output)
            storage.move(old, output)


def _remove_abandoned(output: str) -> None:
    """Remove staging directories of runs that were killed: those in which nothing was written for a day."""
    parent, _, name = output.rstrip("/").rpartition("/")
    staging = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{32}}")
    for entry in storage.list_names(parent):
        if staging.fullmatch(entry):
            written = [file.modified or math.inf for file in storage.find_files(uris.join(parent, entry))]
            if written and max(written) < time.time() - _DAY:
                storage.remove(uris.join(parent, entry))


def _replaced_path(output: str) -> str:
    """Return the path of the previous directory during a swap.

    Spark ignores a name that begins with a dot; one that begins with an underscore is a partition to it if it has "=".
    """
    parent, _, name = output.rstrip("/").rpartition("/")
    return f"{parent}/.{name}{_REPLACED}"


def _build_staging_path(output: str) -> str:
    """Return a new path beside `output` that Spark ignores."""
    parent, _, name = output.rstrip("/").rpartition("/")
    return f"{parent}/.{name}.{uuid.uuid4().hex}"
