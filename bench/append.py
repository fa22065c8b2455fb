"""What adding 1 % to a dataset costs, against exporting all of it.

    PYTHONPATH=plugins:. python bench/append.py [--rows 10000000] [--runs 3]

The export job, from Parquet (32 float32 and a label) to a committed version with splits and shuffle, in one Spark
session on two cores: the whole, then a partition of a hundredth of its rows. A ratio is of neighbouring runs.
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

from trainyard.etl.jobs import export
from trainyard.schemas import manifest
from trainyard.schemas.events import EventLog
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.source import Source
from trainyard.schemas.specs.task_key import TaskKey

WIDTH, CORES = 32, 2


def prepare(spark: Any, source: Any) -> Any:
    return source


def session() -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "4g").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rows(spark: Any, place: Path, count: int) -> Source:
    numbers = ", ".join(f"float(rand({seed}))" for seed in range(WIDTH))
    source = spark.range(count, numPartitions=CORES).selectExpr(f"array({numbers}) as x", "id % 10 as y")
    source.write.mode("overwrite").parquet(str(place))
    return Source(format="parquet", path=str(place))


def seconds(spark: Any, folder: Path, source: Source, partition: str | None) -> float:
    place = TaskKey(dag_id="bench", run_id="r", task_id="export", directory=str(folder / "run"))
    spec = ExportSpec(
        task_key=place, prepare="bench.append:prepare", source=source, dataset=str(folder / "dataset"),
        partition=partition, shards=CORES,
    )  # fmt: skip
    started = time.perf_counter()
    export.run(spark, spec, EventLog(place.directory, place.task, "driver"))
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    spark = session()
    whole, added = [], []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        every = rows(spark, folder / "source", asked.rows)
        more = rows(spark, folder / "more", asked.rows // 100)
        seconds(spark, folder, more, None)
        for number in range(asked.runs):
            whole.append(seconds(spark, folder, every, None))
            added.append(seconds(spark, folder, more, f"day {number}"))
            assert manifest.read_current(str(folder / "dataset")).rows == asked.rows + asked.rows // 100
    spark.stop()
    ratio = statistics.median(small / large for small, large in zip(added, whole, strict=True))
    print(f"all {asked.rows:,} rows: {statistics.median(whole):.2f} s; 1 % more: {statistics.median(added):.2f} s")
    print(f"1 % more / all: {ratio:.3f} (goal 0.05)")


if __name__ == "__main__":
    main()
