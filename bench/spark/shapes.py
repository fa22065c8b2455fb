"""Compare datasets of unusual shapes with Parquet: many columns, large rows, and many partitions.

    PYTHONPATH=plugins:. python -m bench.spark.shapes [--megabytes 400] [--partitions 1000]

Each table has as many bytes of float32. The export job writes it from Parquet, and a shuffled epoch is read. Beside it
Spark shuffles the same rows in the same way and writes Parquet, and pyarrow reads that in order, into tensors; two
cores. The goal is the speed of Parquet. Then partitions of some rows are appended to a dataset: the last tenth of the
appends may take 1.5 times as long as the first tenth. Memory is the highest that a process of each kind has allocated
(RssAnon).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from bench.spark.append import CORES, measure_export, start_session
from bench.spark.growth import measure
from trainyard.etl.jobs.exporting import splits
from trainyard.schemas.specs.source import Source
from trainyard.trainer import Dataset

SHAPES = {"32 floats a row": 32, "2,000 columns": 2_000, "rows of 4 MB": 1 << 20}
GOAL, APPEND_GOAL = 1.0, 1.5
ROWS_OF_PARTITION = 100
ALL_ROWS = {"splits": {"train": 1.0}}


def main() -> None:
    """Print MB/s and memory of each shape and the seconds of appends, and exit with 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--partitions", type=int, default=1_000)
    arguments = parser.parse_args()
    spark, missed = start_session(), False
    for name, width in SHAPES.items():
        with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as temporary:
            folder, parquet = Path(temporary), Path(temporary, "parquet")
            source = write_source(spark, folder / "source", arguments.megabytes, width, name.endswith("columns"))
            show = partial(measure_speed, name, arguments.megabytes)
            written = show("Parquet written", partial(write_parquet, spark, source, parquet))
            exported = show("exported", partial(measure_export, spark, folder, source, None, **ALL_ROWS))
            read = show("Parquet read", partial(read_parquet, parquet, width))
            epoch = show("epoch", partial(read_epoch, folder / "dataset", width))
        print(f"{name:16} exported {exported / written:.2f}, epoch {epoch / read:.2f} of Parquet", flush=True)
        missed |= exported < GOAL * written or epoch < GOAL * read
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as temporary:
        seconds = append_partitions(spark, Path(temporary), arguments.partitions)
        reading = measure(partial(read_epoch, Path(temporary, "dataset"), 2))
    tenth = max(len(seconds) // 10, 1)
    early, late = statistics.median(seconds[:tenth]), statistics.median(seconds[-tenth:])
    print(f"{arguments.partitions} appends: {early:.2f} s at first and {late:.2f} s at last, {late / early:.2f} times")
    print(f"an epoch of the {arguments.partitions} partitions: {reading['seconds']:.1f} s")
    sys.exit(missed or late > APPEND_GOAL * early)


def measure_speed(name: str, megabytes: int, phase: str, function: Callable[[], object]) -> float:
    """Print the MB/s of a function and the memory that it takes, and return the MB/s."""
    result = measure(function)
    speed = megabytes / result["seconds"]
    memory = ", ".join(f"{kind} {size / 2**20:,.0f}" for kind, size in result["memory"].items())
    print(f"{name:16} {phase:15} {speed:6,.0f} MB/s  MiB: {memory}", flush=True)
    return float(speed)


def write_source(spark: Any, path: Path, megabytes: int, width: int, columns: bool) -> Source:
    """Write Parquet with `width` float32 in each row: in as many columns, or in one array."""
    table = spark.range(max((megabytes << 20) // (4 * width), 1), numPartitions=8)
    if columns:
        table = table.selectExpr(*(f"cast(id % {number + 7} as float) as c{number}" for number in range(width)))
    else:
        table = table.selectExpr(f"transform(sequence(1, {width}), i -> cast((id + i) % 1009 as float)) as x")
    table.write.mode("overwrite").parquet(str(path))
    return Source(format="parquet", path=str(path))


def write_parquet(spark: Any, source: Source, path: Path) -> None:
    """Shuffle the rows as the export does, and write Parquet."""
    rows = splits.assign(spark.read.parquet(source.path), ALL_ROWS["splits"])
    splits.shuffle(rows, CORES).drop(splits.SPLIT).write.parquet(str(path))


def read_parquet(path: Path, width: int) -> None:
    """Read each row in order into a tensor a column."""
    for file in sorted(path.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(get_batch_size(width)):
            for column in batch.columns:
                values = column.flatten() if column.type.num_fields else column
                torch.from_numpy(np.array(values.to_numpy(zero_copy_only=False)))


def read_epoch(dataset: Path, width: int) -> None:
    """Read each row of a shuffled epoch into a tensor a column."""
    for _ in Dataset(str(dataset), batch_size=get_batch_size(width), shuffle=True):
        pass


def get_batch_size(width: int) -> int:
    """Return the rows of 4 MiB, or 1,024 if these are less."""
    return max(min((1 << 20) // width, 1024), 1)


def append_partitions(spark: Any, folder: Path, partitions: int) -> list[float]:
    """Append partitions of some rows, and return the seconds that each takes."""
    rows = spark.range(ROWS_OF_PARTITION, numPartitions=1).selectExpr("array(float(id), 1f) as x", "id % 10 as y")
    rows.write.parquet(str(folder / "source"))
    source = Source(format="parquet", path=str(folder / "source"))
    return [measure_export(spark, folder, source, f"part {number}", **ALL_ROWS) for number in range(partitions)]


if __name__ == "__main__":
    main()
