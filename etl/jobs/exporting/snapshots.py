"""Find the version of a lakehouse table, and read that one, whatever is written to the table meanwhile."""

from __future__ import annotations

import re
from typing import NamedTuple, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trainyard.schemas.specs.source import VERSION_OPTIONS, ReadsSources, Source

Spec = TypeVar("Spec", bound=ReadsSources)

_VERSION_OF_PATH = re.compile(r"@(v\d+|\d{17})/*$")
"""How a path of Delta ends that names a version or a time itself."""


class Snapshot(NamedTuple):
    """A version of a table.

    Attributes:
        version: Its number.
        written_at: When it was written: a table that is dropped and created anew counts from 0 again.
    """

    version: str
    written_at: str


def pin_all(spark: SparkSession, spec: Spec) -> tuple[Spec, dict[str, Snapshot | None]]:
    """Return a job that reads one version of each source that has versions.

    Args:
        spark: The session.
        spec: The job.

    Returns:
        The job, and the version of each table by the name of its source: None for a table of a format without versions,
        one that is read with options that Trainyard does not know, or one that is not found. Files have no entry.
    """
    snapshots = {name: find_snapshot(spark, source) for name, source in spec.all_sources.items() if source.is_table}
    pinned = dict(spec.all_sources)
    for name, snapshot in snapshots.items():
        if snapshot and not pinned[name].version:
            pinned[name] = pinned[name].at_version(snapshot.version)
    update = {"sources": pinned} if spec.sources else {"source": pinned["source"]}
    return spec.model_copy(update=update), snapshots


def find_snapshot(spark: SparkSession, source: Source) -> Snapshot | None:
    """Return the version of a table that a source names, or else the newest one.

    None for a table without versions, and for one that is read with other options: of a branch, of what has changed, or
    at a version that its path names.
    """
    if {name.lower() for name in source.reader_options} - {name.lower() for name in VERSION_OPTIONS}:
        return None
    if source.path is not None and _VERSION_OF_PATH.search(source.path):
        return None
    try:
        history = _read_history(spark, source)
        if history is None:
            return None
        found = history.select(F.col("version").cast("string"), F.col("written_at").cast("double")).head()
    except Exception:  # to read the table fails too, with an error that names the source
        return None
    return Snapshot(found["version"], str(found["written_at"])) if found else None


def _read_history(spark: SparkSession, source: Source) -> DataFrame | None:
    """Return the versions that a source of Delta or Iceberg may mean, `version` and `written_at`, the one it is first.

    Those of a source without a version are the current one alone, or the newest first.
    """
    match find_format(spark, source):
        case "delta":
            table = source.table or f"delta.`{str(source.path).replace('`', '``')}`"
            history = spark.sql(f"DESCRIBE HISTORY {table}{'' if source.version else ' LIMIT 1'}")
            return _select_version(history.withColumnRenamed("timestamp", "written_at"), source)
        case "iceberg":
            frame = spark.read.format("iceberg").load(
                f"{source.table}.history" if source.table else f"{source.path}#history"
            )
            history = frame.withColumnsRenamed({"snapshot_id": "version", "made_current_at": "written_at"})
            current = history if source.version else history.filter("is_current_ancestor")
            return _select_version(current, source).orderBy(F.desc("written_at"))
        case _:
            return None


def _select_version(history: DataFrame, source: Source) -> DataFrame:
    """Return the version that a source names, or those until the time that it names."""
    if not source.version:
        return history
    if source.version.isdecimal():
        return history.filter(F.col("version") == int(source.version))
    return history.filter(F.col("written_at") <= F.lit(source.version).cast("timestamp"))


def find_format(spark: SparkSession, source: Source) -> str:
    """Return the format of a source in lowercase, "" for a view of the catalog."""
    if source.table is None:
        return source.format.lower()
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {source.table}").filter("col_name = 'Provider'").collect()
    return rows[-1]["data_type"].lower() if rows else ""
