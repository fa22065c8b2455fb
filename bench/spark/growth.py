"""Measure whether the cost of a row and the memory of each process stay the same as a dataset grows.

    PYTHONPATH=plugins:. python -m bench.spark.growth [--rows 2000000 20000000 200000000]

A row has 32 float32, a number and a label. For each size one process exports rows that Spark makes, one reads a
shuffled epoch, and one evaluates and predicts with a linear model; two cores. 200 M rows take 29 GB
of disk, more than most machines have memory. The goal is 0.8 of the rows/s of the smallest size. Memory is the highest
that a process of each kind has allocated (RssAnon, so without files that it maps).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from torch import nn

from trainyard.trainer import Dataset, Recipe, fit

CORES, WIDTH, BATCH, ROWS_PER_PARTITION = 2, 32, 1024, 1_000_000
GOAL = 0.8
SAMPLE_SECONDS = 0.5


def linear() -> Recipe:
    return Recipe(model=nn.Linear(WIDTH, 10), features="x", label="label", classes=10, loss=nn.CrossEntropyLoss())


def main() -> None:
    """Print rows/s and memory of each phase and size, and exit with 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000_000, 20_000_000, 200_000_000])
    parser.add_argument("--phase", nargs=2, metavar=("PHASES", "DATASET"), help="run these phases in this process")
    arguments = parser.parse_args()
    if arguments.phase:
        phases, uri = arguments.phase
        print(json.dumps(run_phases(phases.split(","), uri, arguments.rows[0])))
        return
    first: dict[str, float] = {}
    missed = False
    for rows in sorted(arguments.rows):
        with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
            for phases in ("export", "epoch", "evaluate,predict"):
                command = [sys.executable, "-m", "bench.spark.growth", "--phase", phases, folder, "--rows", str(rows)]
                output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
                for phase, result in json.loads(output.splitlines()[-1]).items():
                    speed = rows / result["seconds"]
                    ratio = speed / first.setdefault(phase, speed)
                    memory = ", ".join(f"{kind} {size / 2**20:,.0f}" for kind, size in result["memory"].items())
                    print(f"{rows:>11,} {phase:9} {speed:>11,.0f} rows/s  {ratio:.2f}  MiB: {memory}", flush=True)
                    missed |= ratio < GOAL
    sys.exit(missed)


def run_phases(phases: list[str], folder: str, rows: int) -> dict[str, dict[str, Any]]:
    """Return the seconds and the highest memory of each phase."""
    dataset, model = f"{folder}/dataset", f"{folder}/model"
    if phases == ["epoch"]:
        return {"epoch": measure(lambda: read_epoch(dataset))}
    spark, few = start_session(), f"{folder}/few"
    if phases == ["export"]:
        export(spark, few, 10_000)
        fit("bench.spark.growth:linear", dataset=few, model=model, epochs=1)
        return {"export": measure(lambda: export(spark, dataset, rows))}
    results = {}
    for phase, function in (("evaluate", evaluate), ("predict", predict)):
        function(spark, few, model)  # starts the workers, which import torch
        results[phase] = measure(lambda function=function: function(spark, dataset, model))
    return results


def start_session() -> Any:
    """Return a Spark session with the settings of jobs."""
    from pyspark.sql import SparkSession

    from trainyard.etl.datasource import source

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.memory", "2g")
    spark = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "4096").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    source.register(spark)
    return spark


def export(spark: Any, dataset: str, rows: int) -> None:
    """Write rows whose values cost Spark little to make."""
    values = ", ".join(f"cast(id * {2 * number + 3} % 1009 as float)" for number in range(WIDTH))
    frame = spark.range(rows, numPartitions=max(CORES, rows // ROWS_PER_PARTITION))
    frame = frame.selectExpr("id", f"array({values}) as x", "id % 10 as label")
    frame.write.format("trainyard").mode("overwrite").save(dataset)


def read_epoch(dataset: str) -> None:
    """Read each row of a shuffled epoch."""
    for batch in Dataset(dataset, columns=("x", "label"), batch_size=BATCH, shuffle=True):
        batch["x"].sum()


def evaluate(spark: Any, dataset: str, model: str) -> None:
    """Evaluate on all rows."""
    from trainyard.etl.evaluation.evaluate import evaluate
    from trainyard.etl.scoring.scan import DatasetScan

    evaluate(DatasetScan(spark, dataset), [model], ["accuracy"])


def predict(spark: Any, dataset: str, model: str) -> None:
    """Predict all rows, and write the predictions nowhere."""
    from trainyard.etl.jobs.predict import predict
    from trainyard.etl.scoring.scan import DatasetScan

    frame = predict(DatasetScan(spark, dataset), model, ["id"])
    frame.write.format("noop").mode("overwrite").save()


def measure(function: Callable[[], object]) -> dict[str, Any]:
    """Return the seconds that a function takes, and the highest memory of a process of each kind in bytes."""
    with sample_memory() as memory:
        started = time.perf_counter()
        function()
        return {"seconds": time.perf_counter() - started, "memory": memory}


@contextmanager
def sample_memory() -> Iterator[dict[str, int]]:
    """Fill a dict with the highest memory of this process ("driver"), Spark's JVM ("jvm") and Python workers."""
    highest: dict[str, int] = {}
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            for process in (own := psutil.Process(), *own.children(recursive=True)):
                try:
                    kind = "driver" if process == own else "jvm" if process.name() == "java" else "worker"
                    highest[kind] = max(highest.get(kind, 0), read_anonymous_memory(process.pid))
                except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):  # it has ended
                    continue

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield highest
    finally:
        ended.set()
        thread.join()


def read_anonymous_memory(pid: int) -> int:
    """Return the bytes that a process has allocated and that are in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next((int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon")), 0)


if __name__ == "__main__":
    main()
