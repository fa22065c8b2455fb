"""Find the version of a lakehouse table, and read that one, whatever is written to the table meanwhile."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from trainyard.schemas.specs.source import ReadsSources, Source

Spec = TypeVar("Spec", bound=ReadsSources)

_DELTA = "delta"


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
    """Return the version of a Delta table that a source names, or else the newest one; None for any other source."""
    try:
        if source.path is not None and source.format == _DELTA:
            table = f"delta.`{source.path.replace('`', '``')}`"
        elif source.table is not None and _find_provider(spark, source.table) == _DELTA:
            table = source.table
        else:
            return None
        history = spark.sql(f"DESCRIBE HISTORY {table}")
        versions = history.filter(F.col("version") == source.version) if source.version else history.limit(1)
        found = versions.select("version", F.col("timestamp").cast("long").alias("written_at")).head()
    except PySparkException:  # to read it fails too, with an error that names the source
        return None
    return Snapshot(str(found["version"]), str(found["written_at"])) if found else None


def _find_provider(spark: SparkSession, table: str) -> str:
    """Return the format of a table of the catalog, "" for a view."""
    rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").filter("col_name = 'Provider'").collect()
    return rows[-1]["data_type"].lower() if rows else ""
