"""Measure datasets of unusual shapes: many columns, large rows, and many partitions.

    PYTHONPATH=plugins:. python -m bench.spark.shapes [--megabytes 800] [--partitions 1000]

Each is a table of as many bytes of float32 as the first one, which has 32 in a row. It is exported from Parquet by the
export job and read in a shuffled epoch; two cores. The goal is half of the MB/s of the first table. Then as many
partitions are appended, and the goal is that the last tenth of the appends takes at most 1.5 times as long as the
first tenth. Memory is the highest that a process of each kind has allocated (RssAnon).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from bench.spark.append import measure_export, start_session
from bench.spark.growth import measure
from trainyard.schemas.specs.source import Source
from trainyard.trainer import Dataset

SHAPES = {"32 floats a row": 32, "2,000 columns": 2_000, "rows of 4 MB": 1 << 20}
GOAL, PARTITION_GOAL = 0.5, 1.5
ROWS_OF_PARTITION = 100
ALL_ROWS = {"splits": {"train": 1.0}}


def main() -> None:
    """Print MB/s and memory of each shape and the seconds of appends, and exit with 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=800)
    parser.add_argument("--partitions", type=int, default=1_000)
    arguments = parser.parse_args()
    spark, missed = start_session(), False
    first: dict[str, float] = {}
    for name, width in SHAPES.items():
        with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as temporary:
            folder = Path(temporary)
            source = write_source(spark, folder / "source", arguments.megabytes, width, name.endswith("columns"))
            phases = {
                "export": measure(partial(measure_export, spark, folder, source, None, **ALL_ROWS)),
                "epoch": measure(partial(read_epoch, folder / "dataset", width)),
            }
        for phase, result in phases.items():
            speed = arguments.megabytes / result["seconds"]
            ratio = speed / first.setdefault(phase, speed)
            memory = ", ".join(f"{kind} {size / 2**20:,.0f}" for kind, size in result["memory"].items())
            print(f"{name:16} {phase:7} {speed:6,.0f} MB/s  {ratio:.2f}  MiB: {memory}", flush=True)
            missed |= ratio < GOAL
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as temporary:
        seconds = append_partitions(spark, Path(temporary), arguments.partitions)
        reading = measure(partial(read_epoch, Path(temporary, "dataset"), 2))
    tenth = max(len(seconds) // 10, 1)
    early, late = statistics.median(seconds[:tenth]), statistics.median(seconds[-tenth:])
    print(
        f"{arguments.partitions} appends: {early:.2f} s at first, {late:.2f} s at last, {late / early:.2f} times as long"
    )
    print(f"an epoch of the {arguments.partitions} partitions: {reading['seconds']:.1f} s")
    sys.exit(missed or late > PARTITION_GOAL * early)


def write_source(spark: Any, path: Path, megabytes: int, width: int, columns: bool) -> Source:
    """Write Parquet with `width` float32 in each row: in as many columns, or in one array."""
    rows = max((megabytes << 20) // (4 * width), 1)
    table = spark.range(rows, numPartitions=8)
    if columns:
        table = table.selectExpr(*(f"cast(id % {number + 7} as float) as c{number}" for number in range(width)))
    else:
        table = table.selectExpr(f"transform(sequence(1, {width}), i -> cast((id + i) % 1009 as float)) as x")
    table.write.mode("overwrite").parquet(str(path))
    return Source(format="parquet", path=str(path))


def read_epoch(dataset: Path, width: int) -> None:
    """Read each row of a shuffled epoch, in batches of 4 MiB, or 1,024 rows if these are less."""
    batch_size = max(min((1 << 20) // width, 1024), 1)
    for batch in Dataset(str(dataset), batch_size=batch_size, shuffle=True):
        next(iter(batch.values())).sum()


def append_partitions(spark: Any, folder: Path, partitions: int) -> list[float]:
    """Append partitions of some rows, and return the seconds that each takes."""
    rows = spark.range(ROWS_OF_PARTITION, numPartitions=1).selectExpr("array(float(id), 1f) as x", "id % 10 as y")
    rows.write.parquet(str(folder / "source"))
    source = Source(format="parquet", path=str(folder / "source"))
    return [measure_export(spark, folder, source, f"part {number}", **ALL_ROWS) for number in range(partitions)]


if __name__ == "__main__":
    main()
