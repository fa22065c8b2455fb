"""How fast batches are written, against Spark's Parquet writer and MosaicML Streaming's MDS writer.

    PYTHONPATH=plugins:. python bench/export.py [--rows 2000000] [--runs 3]

One Spark session on two cores reads the same Parquet source, 32 float32 in an array column and a
label, and writes it in the same partitions, without a shuffle: as batches (with statistics and
checksums), and as Parquet. Runs alternate; a ratio is the median over neighbouring runs, so that
a busy machine slows both sides. The MDS writer runs in `.venv-bench` (pip install
mosaicml-streaming) on one core, from arrays in memory, on a tenth of the rows; its figure is
scaled to two cores as if it scaled perfectly.
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
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
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
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        seconds = compare(Path(place), given.rows, given.runs)
        speed = {name: given.rows / statistics.median(times) for name, times in seconds.items()}
        print(f"{given.rows:,} rows x {WIDTH} float32 + label, local[{CORES}], {given.runs} alternating runs, medians")
        for name, times in seconds.items():
            told = " ".join(f"{t:.2f}" for t in sorted(times))
            ratio = statistics.median(t / ours for t, ours in zip(times, seconds["batches"], strict=True))
            print(f"{name:22} {speed[name]:12,.0f} rows/s   runs {told} s   batches: {ratio:.2f}x")
        mds(Path(place), given.rows // 10, speed["batches"])


def compare(place: Path, rows: int, runs: int) -> dict[str, list[float]]:
    """Seconds of each run, for each writer; one run of each goes before, uncounted."""
    from pyspark.sql import SparkSession

    from trainyard.etl.datasource import source as dataset_format

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
    dataset_format.register(spark)
    numbers = ", ".join(f"float(rand({seed}))" for seed in range(WIDTH))
    source = spark.range(rows, numPartitions=CORES).selectExpr(f"array({numbers}) as x", "id % 10 as y")
    source.write.parquet(str(place / "source"))
    frame = spark.read.parquet(str(place / "source"))
    writers: dict[str, Callable[[str], None]] = {
        "batches": lambda out: frame.write.format("trainyard").mode("overwrite").save(out),
        "Parquet (default)": lambda out: frame.write.parquet(out),
        "Parquet (uncompressed)": lambda out: frame.write.option("compression", "none").parquet(out),
    }
    seconds: dict[str, list[float]] = {name: [] for name in writers}
    for run in range(runs + 1):
        for name, write in writers.items():
            out = place / "out"
            start = time.perf_counter()
            write(str(out))
            took = time.perf_counter() - start
            shutil.rmtree(out)
            seconds[name] += [took] if run else []
    spark.stop()
    return seconds


def mds(place: Path, rows: int, ours: float) -> None:
    """Print the MDS writer's speed where its environment is there."""
    python = ROOT / ".venv-bench" / "bin" / "python"
    if not python.exists() or subprocess.run([python, "-c", "import streaming"], stderr=subprocess.DEVNULL).returncode:
        print("MDS: no .venv-bench with mosaicml-streaming, not measured")
        return
    run = subprocess.run([python, "-c", MDS, str(rows), str(place / "mds")], capture_output=True, text=True, check=True)
    speed = float(run.stdout.split()[-1]) * CORES
    print(f"{f'MDS x {CORES} cores':22} {speed:12,.0f} rows/s   batches: {ours / speed:.1f}x")


if __name__ == "__main__":
    main()
