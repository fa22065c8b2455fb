"""Find the version of a lakehouse table, and read that one, whatever is written to the table meanwhile."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trainyard.schemas.specs.source import ReadsSources, Source

Spec = TypeVar("Spec", bound=ReadsSources)


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
        or that is not found. Files that are no table have no entry.
    """
    pinned: dict[str, Source] = {}
    snapshots: dict[str, Snapshot | None] = {}
    for name, source in spec.all_sources.items():
        snapshot = find_snapshot(spark, source)
        pinned[name] = source.at_version(snapshot.version) if snapshot and not source.version else source
        if snapshot or source.table is not None:
            snapshots[name] = snapshot
    update = {"sources": pinned} if spec.sources else {"source": pinned["source"]}
    return spec.model_copy(update=update), snapshots


def find_snapshot(spark: SparkSession, source: Source) -> Snapshot | None:
    """Return the version of a table that a source names, or else the newest one; None if it has no versions."""
    try:
        history = _read_history(spark, source)
        if history is None:
            return None
        versions = history.filter(F.col("version") == source.version) if source.version else history
        found = versions.select(F.col("version").cast("string"), F.col("written_at").cast("double")).head()
    except PySparkException:  # to read it fails too, with an error that names the source
        return None
    return Snapshot(found["version"], str(found["written_at"])) if found else None


def _read_history(spark: SparkSession, source: Source) -> DataFrame | None:
    """Return the columns `version` and `written_at` of a table of Delta or Iceberg, the newest version first."""
    match source.format if source.table is None else _find_provider(spark, source.table):
        case "delta":
            table = source.table or f"delta.`{str(source.path).replace('`', '``')}`"
            return spark.sql(f"DESCRIBE HISTORY {table}").withColumnRenamed("timestamp", "written_at")
        case "iceberg":
            history = f"{source.table}.history" if source.table else f"{source.path}#history"
            frame = spark.read.format("iceberg").load(history)
            named = frame.withColumnsRenamed({"snapshot_id": "version", "made_current_at": "written_at"})
            return named.filter("is_current_ancestor").orderBy(F.desc("written_at"))
        case _:
            return None


def _find_provider(spark: SparkSession, table: str) -> str:
    """Return the format of a table of the catalog, "" for a view."""
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").filter("col_name = 'Provider'").collect()
    return rows[-1]["data_type"].lower() if rows else ""
