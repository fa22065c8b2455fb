"""Measure the first write of a dataset in a Spark session, as an export does it and by the data source of Spark.

    PYTHONPATH=plugins:. python bench/spark/first_write.py [--runs 3]

For `df.write.format("trainyard")` Spark starts Python processes that look up the data source, plan the write and commit
it, one after the other. Each run is a session of its own, in a process of its own, of 500 rows; ways alternate.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median

WAYS = ("export", "data source")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help="one run, which prints its seconds")
    arguments = parser.parse_args()
    if arguments.way:
        print(measure(arguments.way))
        return
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(arguments.runs):
        for way in WAYS:
            command = [sys.executable, __file__, "--way", way]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
            seconds[way].append(float(done.stdout.split()[-1]))
    for way, runs in seconds.items():
        ratio = median(own / export for own, export in zip(runs, seconds["export"], strict=True))
        print(f"{way:12} {' '.join(f'{run:.2f}' for run in sorted(runs))} s   of an export: {ratio:.2f}")


def measure(way: str) -> float:
    """Return the seconds of the first write in a new session."""
    from pyspark.sql import SparkSession

    from trainyard.etl.datasource import source

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    frame = spark.range(500).selectExpr("cast(id as float) as x", "if(id < 400, 'train', 'test') as split")
    frame.count()
    options = {"splitColumn": "split"}

    def write_as_spark_does(uri: str) -> None:
        source.register(spark)
        frame.write.format("trainyard").mode("overwrite").options(**options).save(uri)

    write: Callable[[str], None] = (
        write_as_spark_does if way == "data source" else lambda uri: source.save(frame, uri, "overwrite", options)
    )
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        write(f"{folder}/dataset")
        elapsed = time.perf_counter() - start
    spark.stop()
    return elapsed


if __name__ == "__main__":
    main()
