"""What authentication and encryption of Spark's connections cost on YARN.

    make cluster
    (. stack/local/env.sh && . .run/hadoop/env.sh && PYTHONPATH=plugins:. python -m bench.spark.authentication)

An application with two executors runs in turn with the settings that Trainyard adds on YARN and without: small jobs one
after the other, each with a task for each executor, and a shuffle of random rows between both. The ratio is that of the
medians.
"""

from __future__ import annotations

import argparse
import statistics
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from trainyard.yarn.settings import AUTHENTICATED_CONF

JOBS, ROWS = 200, 3_000_000
CONF = {
    "spark.executor.instances": "2",
    "spark.executor.memory": "700m",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.yarn.queue": "etl",
    "spark.ui.enabled": "false",
}
OFF = dict.fromkeys(AUTHENTICATED_CONF, "false")


def measure(conf: dict[str, str]) -> dict[str, float]:
    """Return the seconds of each part of an application."""
    started = time.perf_counter()
    session = SparkSession.builder.master("yarn").config(map=CONF | conf).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.range(2).repartition(2).count()
    times = [time.perf_counter()]
    for _ in range(JOBS):
        session.sparkContext.range(2, numSlices=2).count()
    times.append(time.perf_counter())
    rows = session.range(ROWS, numPartitions=2).withColumn("text", F.sha2(F.col("id").cast("string"), 256))
    rows.repartition(2, "text").write.format("noop").mode("overwrite").save()
    times.append(time.perf_counter())
    session.stop()
    start, jobs, shuffle = (end - begin for begin, end in zip([started, *times], times, strict=False))
    return {"until the first job has ended": start, f"{JOBS} small jobs": jobs, f"a shuffle of {ROWS:,} rows": shuffle}


def main() -> None:
    """Print a table of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=3)
    trials = parser.parse_args().trials
    measure(OFF)  # starts the JVM
    pairs = [(measure(OFF), measure(AUTHENTICATED_CONF)) for _ in range(trials)]
    print("| part | without, s | with, s | ratio |\n| --- | --- | --- | --- |")
    for part in pairs[0][0]:
        off, on = (statistics.median(pair[each][part] for pair in pairs) for each in (0, 1))
        print(f"| {part} | {off:.2f} | {on:.2f} | {on / off:.2f} |")


if __name__ == "__main__":
    main()
