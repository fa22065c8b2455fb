"""Compare an export of thousands of columns with Spark's own write of the same rows.

    PYTHONPATH=plugins:. python bench/spark/wide.py [--columns 3000] [--rows 300] [--runs 2]

Both read one Parquet file on two cores. The first run of each, in which Spark compiles, is measured too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]


def prepare(spark: object, frame: object) -> object:
    """Return the rows as they are."""
    return frame


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=3000)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--runs", type=int, default=2)
    args = parser.parse_args()
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": f"{ROOT / 'plugins'}{os.pathsep}{ROOT}"}
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), args.columns, args.rows, args.runs)


def compare(folder: Path, columns: int, rows: int, runs: int) -> None:
    """Print the seconds of each run of both."""
    from pyspark.sql import SparkSession

    from trainyard.backends.driver import DEFAULTS
    from trainyard.etl.jobs.exporting import export
    from trainyard.schemas.runs.events import EventLog
    from trainyard.schemas.specs.export import ExportSpec
    from trainyard.schemas.specs.source import Source
    from trainyard.schemas.specs.task_key import TaskKey

    random, source = np.random.default_rng(0), str(folder / "rows.parquet")
    pq.write_table(pa.table({f"c{i}": random.random(rows, np.float32) for i in range(columns)}), source)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config(map=DEFAULTS)
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    key = TaskKey(dag_id="bench", run_id="wide", task_id="export", directory=str(folder / "run"))
    spec = ExportSpec(
        task_key=key, source=Source(format="parquet", path=source), prepare="bench.spark.wide:prepare",
        dataset=str(folder / "dataset"),
    )  # fmt: skip
    for run in range(runs):
        start = time.perf_counter()
        spark.read.parquet(source).write.mode("overwrite").parquet(str(folder / "copy"))
        middle = time.perf_counter()
        export.run(spark, spec, EventLog(key.directory, key.task, "driver"))
        plain, ours = middle - start, time.perf_counter() - middle
        print(f"run {run}: {plain:.1f} s as Parquet, {ours:.1f} s as a dataset, {ours / plain:.1f} times", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
