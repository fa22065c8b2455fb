"""Compare adding 1 % of rows to a dataset with exporting all rows.

    PYTHONPATH=plugins:. python bench/spark/append.py [--rows 10000000] [--runs 3]

Each run is an export job, from Parquet (32 float32 and a label) to a committed version with splits and shuffle, in
one Spark session on two cores: first of a partition with all rows, then of one with a hundredth of them. Ratios are of
neighboring runs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from trainyard.etl.jobs.exporting import export
from trainyard.schemas.datasets import manifest
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.source import Source
from trainyard.schemas.specs.task_key import TaskKey

WIDTH, CORES = 32, 2


def prepare(spark: Any, source: Any) -> Any:
    return source


def start_session() -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "4g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write_source(spark: Any, path: Path, count: int) -> Source:
    numbers = ", ".join(f"float(rand({seed}))" for seed in range(WIDTH))
    source = spark.range(count, numPartitions=CORES).selectExpr(f"array({numbers}) as x", "id % 10 as y")
    source.write.mode("overwrite").parquet(str(path))
    return Source(format="parquet", path=str(path))


def measure_export(spark: Any, folder: Path, source: Source, partition: str, **fields: Any) -> float:
    task_key = TaskKey(dag_id="bench", run_id="r", task_id="export", directory=str(folder / "run"))
    spec = ExportSpec(
        task_key=task_key, prepare="bench.spark.append:prepare", source=source, dataset=str(folder / "dataset"),
        partition=partition, shards=CORES, **fields,
    )  # fmt: skip
    started = time.perf_counter()
    with EventLog(task_key.directory, task_key.task, "driver") as events:
        export.run(spark, spec, events)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    spark = start_session()
    full, partial = [], []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        all_rows = write_source(spark, folder / "source", args.rows)
        few_rows = write_source(spark, folder / "more", args.rows // 100)
        measure_export(spark, folder, few_rows, "all")
        for _ in range(args.runs):
            full.append(measure_export(spark, folder, all_rows, "all"))
            partial.append(measure_export(spark, folder, few_rows, "more"))
            assert manifest.read_current(str(folder / "dataset")).rows == args.rows + args.rows // 100
    spark.stop()
    ratio = statistics.median(small / large for small, large in zip(partial, full, strict=True))
    print(f"all {args.rows:,} rows: {statistics.median(full):.2f} s; 1 % more: {statistics.median(partial):.2f} s")
    print(f"1 % more / all: {ratio:.3f} (goal 0.05)")


if __name__ == "__main__":
    main()
