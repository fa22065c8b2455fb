"""Compare the speed of writing a dataset with Spark's Parquet writer and MosaicML Streaming's MDS writer.

    PYTHONPATH=plugins:. python bench/spark/export.py [--rows 2000000] [--runs 3]

One Spark session on two cores reads the same Parquet source, 32 float32 in an array column and a label, and writes it
in the same partitions, without a shuffle: as a dataset (with statistics and checksums), and as Parquet. "Handed to
Python" only passes the rows to Python as Arrow and counts them, as fast as any writer in Python can be. Runs
alternate; ratios are medians over neighboring runs, so that a busy machine slows both sides. The MDS writer runs in
`.venv-bench` (pip install mosaicml-streaming) on one core, from arrays in memory, on a tenth of the rows; its speed
is doubled, as if two cores were twice as fast.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROOT = Path(__file__).parents[2]
WIDTH, CORES = 32, 2
MDS = """
import sys, time
import numpy as np
from streaming import MDSWriter
rows = int(sys.argv[1])
x = np.random.default_rng(0).random((rows, 32), dtype=np.float32)
start = time.perf_counter()
with MDSWriter(out=sys.argv[2], columns={"x": "ndarray:float32:32", "y": "int64"}, hashes=["sha1"]) as out:
    for index in range(rows):
        out.write({"x": x[index], "y": index % 10})
print(rows / (time.perf_counter() - start))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds = compare(Path(folder), args.rows, args.runs)
        speed = {name: args.rows / statistics.median(times) for name, times in seconds.items()}
        print(f"{args.rows:,} rows x {WIDTH} float32 + label, local[{CORES}], {args.runs} alternating runs, medians")
        for name, times in seconds.items():
            runs = " ".join(f"{t:.2f}" for t in sorted(times))
            ratio = statistics.median(t / ours for t, ours in zip(times, seconds["dataset"], strict=True))
            print(f"{name:22} {speed[name]:12,.0f} rows/s   runs {runs} s   dataset: {ratio:.2f}x")
        measure_mds(Path(folder), args.rows // 10, speed["dataset"])


def compare(folder: Path, rows: int, runs: int) -> dict[str, list[float]]:
    """Return the seconds of each run of each writer, after one run of each to warm up."""
    from pyspark.sql import SparkSession

    from trainyard.etl.datasource import source as datasource

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "4096")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    datasource.register(spark)
    numbers = ", ".join(f"float(rand({seed}))" for seed in range(WIDTH))
    source = spark.range(rows, numPartitions=CORES).selectExpr(f"array({numbers}) as x", "id % 10 as y")
    source.write.parquet(str(folder / "source"))
    frame = spark.read.parquet(str(folder / "source"))
    writers: dict[str, Callable[[str], None]] = {
        "dataset": lambda out: frame.write.format("trainyard").mode("overwrite").save(out),
        "Parquet (default)": lambda out: frame.write.parquet(out),
        "handed to Python": lambda _: count_rows(frame),
        "Parquet (uncompressed)": lambda out: frame.write.option("compression", "none").parquet(out),
    }
    seconds: dict[str, list[float]] = {name: [] for name in writers}
    for run in range(runs + 1):
        for name, write in writers.items():
            out = folder / "out"
            start = time.perf_counter()
            write(str(out))
            elapsed = time.perf_counter() - start
            shutil.rmtree(out, ignore_errors=True)
            seconds[name] += [elapsed] if run else []
    spark.stop()
    return seconds


def count_rows(frame: DataFrame) -> None:
    """Pass all rows to Python, which counts them."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"rows": [sum(batch.num_rows for batch in batches)]})

    frame.mapInArrow(count, "rows long").write.format("noop").mode("overwrite").save()


def measure_mds(folder: Path, rows: int, ours: float) -> None:
    """Print the speed of the MDS writer, if its environment exists."""
    python = ROOT / ".venv-bench" / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-c", "import streaming"], stderr=subprocess.DEVNULL).returncode:
        print("MDS: not measured, because there is no .venv-bench with mosaicml-streaming")
        return
    process = subprocess.run(
        [python, "-c", MDS, str(rows), str(folder / "mds")], capture_output=True, text=True, check=True
    )
    speed = float(process.stdout.split()[-1]) * CORES
    print(f"{f'MDS x {CORES} cores':22} {speed:12,.0f} rows/s   dataset: {ours / speed:.1f}x")


if __name__ == "__main__":
    main()
