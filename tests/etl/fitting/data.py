"""Rows with categories as people have them, and their exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.etl.models import make_log, make_task_key
from trainyard.etl.jobs.exporting import export
from trainyard.schemas.results import DatasetResult
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.source import Source

CITIES = ["Köln", "köln", " Köln", "Köln ", "Berlin", "", "🏙️", "x" * 300, "unseen", '"', "null", "Ulm", None]
STORES = [2**31, 2**31 + 1, -(2**62), 7, 0, None]
KINDS = ["ähre", "Zebra", "apple", "10", "9"]
SCHEMA = "key bigint, city string, store bigint, open boolean, kind string, split string"
Row = tuple[Any, ...]


def make_rows(count: int = 600) -> list[Row]:
    """Return rows of which one city is in the split `test` alone, and one occurs once in training."""
    random = np.random.default_rng(0)
    rows: list[Row] = []
    for key in range(count):
        split = ["train", "train", "validation", "test"][key % 4]
        city, store = CITIES[min(int(random.geometric(0.2)), len(CITIES)) - 1], STORES[key % len(STORES)]
        rows.append((key, city, store, [True, False, None][int(random.integers(3))], KINDS[key % len(KINDS)], split))
    rows.append((count, "Bremen", 7, True, "apple", "test"))
    rows.append((count + 1, "Once", 7, True, "apple", "train"))
    return rows


def write_source(spark: Any, path: Path, rows: list[Row]) -> Source:
    """Write rows as several files."""
    spark.createDataFrame(rows, SCHEMA).repartition(4).write.parquet(str(path))
    return Source(format="parquet", path=str(path))


def make_spec(directory: Path, source: Source, **fields: Any) -> ExportSpec:
    """Return the spec of an export of such rows."""
    given = {"dataset": str(directory / "dataset"), "splits": "split", "shards": 3, "prepare": "prepares:rows"}
    return ExportSpec(task_key=make_task_key(directory), source=source, **(given | fields))


def run(spark: Any, spec: ExportSpec) -> DatasetResult:
    """Export, and return the result."""
    return export.run(spark, spec, make_log(spec))
