"""Read the rows that were added to a lakehouse table after a version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.source import LAKEHOUSES, Source

_COMMIT = "add struct<path: string, dataChange: boolean>, remove struct<path: string, dataChange: boolean>"
_ADDING = ("append", "replace")
"""The operations of Iceberg that delete no rows; the latter writes the same rows to other files."""


@dataclass(frozen=True)
class Change:
    """A file that a version of a table of Delta adds or removes.

    Attributes:
        version: The version.
        file: The name of the file.
        is_added: Whether it is added.
        changes_rows: Whether the table has other rows with it; a compaction writes the same rows to other files.
    """

    version: int
    file: str
    is_added: bool
    changes_rows: bool


class Ancestor(NamedTuple):
    """A snapshot of a table of Iceberg."""

    parent: int | None
    operation: str


def read(spark: SparkSession, source: Source, kind: str) -> DataFrame:
    """Return the rows that a table has in the version of the source, and had not in the one that it names by `since`.

    Raises:
        TrainyardError: The table has no versions, rows were deleted or changed since, or the version is not known.
    """
    if kind not in LAKEHOUSES or not source.version.isdecimal():
        raise TrainyardError(
            f"the source {source.describe()}: since is for tables of Delta and Iceberg, in their newest version or one "
            "that is named by its number, without further options. Remove since, or the other options."
        )
    return _read_delta(spark, source) if kind == "delta" else _read_iceberg(spark, source)


def find_files(changes: Iterable[Change], newest: int) -> dict[int, list[str]]:
    """Return the files with the rows that were added, by the version to read them in: a later one has no such file.

    Raises:
        ValueError: A version deletes or changes rows. Its number is the argument.
    """
    added: set[str] = set()
    last: dict[str, int] = {}
    for change in sorted(changes, key=lambda change: (change.version, change.is_added)):
        if change.is_added and change.changes_rows:
            added.add(change.file)
            last[change.file] = newest
        elif not change.is_added and change.changes_rows:
            raise ValueError(change.version)
        elif not change.is_added:
            last[change.file] = change.version - 1
    files = defaultdict(list)
    for file in sorted(added):
        files[last[file]].append(file)
    return dict(files)


def find_operations(snapshots: Mapping[int, Ancestor], newest: int, since: int) -> list[tuple[int, str]]:
    """Return the snapshots after `since` up to the newest one with their operations, the newest first.

    Raises:
        KeyError: `since` is no ancestor of the newest one, or one between them has expired.
    """
    operations, at = [], newest
    while at != since:
        operations.append((at, snapshots[at].operation))
        parent = snapshots[at].parent
        if parent is None:
            raise KeyError(since)
        at = parent
    return operations


def _read_delta(spark: SparkSession, source: Source) -> DataFrame:
    newest, since = int(source.version), int(source.since)
    if since > newest:
        raise _unknown_error(source)
    name = source.table or f"delta.`{str(source.path).replace('`', '``')}`"
    location = spark.sql(f"DESCRIBE DETAIL {name}").collect()[0]["location"]
    commits = [f"{location}/_delta_log/{version:020}.json" for version in range(since + 1, newest + 1)]
    changes: list[Change] = []
    if commits:
        changes = _read_changes(spark, source, commits)
    try:
        files = find_files(changes, newest)
    except ValueError as error:
        raise _changed_error(source, str(error)) from None
    empty = _load(spark, source, newest).where(F.lit(False))
    parts = [
        _load(spark, source, version).where(F.col("_metadata.file_name").isin(names))
        for version, names in files.items()
    ]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), [*parts, empty])


def _read_changes(spark: SparkSession, source: Source, commits: list[str]) -> list[Change]:
    """Return what commits of Delta's log add and remove."""
    try:
        log = spark.read.schema(_COMMIT).json(commits)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            raise _unknown_error(source) from error
        raise
    version = F.regexp_extract("_metadata.file_name", r"\d+", 0).cast("long")
    rows = log.select(version.alias("version"), "add", "remove").where("add IS NOT NULL OR remove IS NOT NULL")
    return [
        Change(row["version"], file["path"].rpartition("/")[2], bool(row["add"]), file["dataChange"])
        for row in rows.collect()
        for file in [row["add"] or row["remove"]]
    ]


def _load(spark: SparkSession, source: Source, version: int) -> DataFrame:
    pinned = source.at_version(str(version))
    reader = spark.read.options(**pinned.reader_options)
    return reader.table(source.table) if source.table else reader.format(source.format).load(source.path)


def _read_iceberg(spark: SparkSession, source: Source) -> DataFrame:
    newest, since = int(source.version), int(source.since)
    location = source.table or str(source.path)
    listed = spark.read.format("iceberg").load(f"{location}.snapshots" if source.table else f"{location}#snapshots")
    snapshots = {row["snapshot_id"]: Ancestor(row["parent_id"], row["operation"]) for row in listed.collect()}
    try:
        operations = find_operations(snapshots, newest, since)
    except KeyError:
        raise _unknown_error(source) from None
    for snapshot, operation in reversed(operations):
        if operation not in _ADDING:
            raise _changed_error(source, f"{snapshot} ({operation})")
    if all(operation != "append" for _, operation in operations):
        return _load(spark, source, newest).where(F.lit(False))
    reader = spark.read.format("iceberg").option("start-snapshot-id", since).option("end-snapshot-id", newest)
    return reader.load(location)


def _changed_error(source: Source, version: str) -> TrainyardError:
    return TrainyardError(
        f"the source {source.describe()}: version {version} deletes or changes rows, which rows that were exported "
        "before still have. Remove since to export the whole table, or name a version since which rows were only "
        "added."
    )


def _unknown_error(source: Source) -> TrainyardError:
    return TrainyardError(
        f"the source {source.describe()}: what was added since version {source.since} is not known. The table never "
        "had this version, was created anew, or its history has expired (delta.logRetentionDuration, "
        "expire_snapshots). Remove since to export the whole table."
    )
