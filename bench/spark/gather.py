"""What the Spark driver gathers, within a limit of memory: statistics of 10,000 tasks, sums of slices, AUROC of 1,000
classes, and a failed write and the expiry of versions of a dataset that has 10,000.

    PYTHONPATH=plugins:. python -m bench.spark.gather [--tasks 10000] [--classes 1000] [--versions 10000]

Each measurement runs in a process of its own, which ends with MemoryError if it allocates more than its limit. Tasks
are simulated: the driver's functions get what so many tasks return.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.trainer import datasets
from trainyard.etl.datasource.writing import task_statistics, writer
from trainyard.etl.datasource.writing.statistics import ColumnStatistics, Moments
from trainyard.etl.datasource.writing.task_writer import TaskOutput
from trainyard.etl.metrics.bins import BINS
from trainyard.etl.metrics.classification import Classification
from trainyard.etl.metrics.rows import RowCount
from trainyard.etl.metrics.scores import ModelMetrics
from trainyard.etl.metrics.sums import ALL_ROWS, BUCKETS, RANGE_CELLS, Key, Slice, merge_sums, to_table
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets import versions

MIB = 1 << 20
ENTRIES, COLUMNS = 4096, 3


def gather_statistics(tasks: int) -> str:
    """Merge the statistics of so many tasks, with three tensor columns of 4,096 entries, and one of dates."""
    rng = np.random.default_rng(0)
    columns = {}
    for number in range(COLUMNS):
        moments = Moments(100, *rng.random((4, ENTRIES)))
        columns[f"x{number}"] = ColumnStatistics(moments, 100, 0, None)
    columns["label"] = ColumnStatistics(Moments(100, *np.ones((4, 1))), 100, 0, dict.fromkeys(range(1000), 1))
    columns["day"] = ColumnStatistics(None, 100, 0, {date.fromordinal(730_000 + day): 1 for day in range(1000)})
    with tempfile.TemporaryDirectory() as folder:
        sha256 = task_statistics.save_if_large(f"{folder}/statistics.arrow", {"train": columns})
        size = Path(folder, "statistics.arrow").stat().st_size
        outputs = [
            TaskOutput(number, (), "", statistics_path="statistics.arrow", statistics_sha256=sha256)
            for number in range(tasks)
        ]
        total = writer._merge_statistics(folder, outputs)
    assert total["train"]["x0"].rows == 100 * tasks
    return f"{tasks:,} tasks of {size / 1e3:.0f} kB, {tasks * size / 1e9:.1f} GB in all"


def merge_slices(tasks: int) -> str:
    """Merge the sums of so many tasks, with 2,000 cells in each of 100 slices."""
    cells, sums = np.arange(0, 20_000, 10), np.ones(2000)
    slices = {Key(0, "scores", Slice("country", str(number))): (cells, sums) for number in range(100)}
    merged = merge_sums(to_table(slices) for _ in range(tasks))
    assert all(total[0] == tasks for _, total in merged.values())
    return f"{tasks:,} tasks, {sum(part.nbytes for sparse in merged.values() for part in sparse) / 1e6:.1f} MB merged"


def merge_range(tasks: int, classes: int) -> str:
    """Merge what so many tasks return of one in 100 ranges of the cells, each with 4 % of the cells."""
    cells = classes * 2 * BINS * BUCKETS
    mine = np.arange(0, cells // RANGE_CELLS, 100)

    def read() -> Iterator[pa.RecordBatch]:
        rng = np.random.default_rng(0)
        for _ in range(tasks):
            numbers = np.concatenate([np.flatnonzero(rng.random(RANGE_CELLS) < 0.04) + r * RANGE_CELLS for r in mine])
            yield to_table({Key(0, "scores", ALL_ROWS): (numbers, np.ones(len(numbers)))})

    merged = merge_sums(read())
    return f"{tasks:,} tasks, {len(merged[Key(0, 'scores', ALL_ROWS)][0]):,} cells of {cells:,}"


def compute_auroc(classes: int) -> str:
    """Compute AUROC with its interval from the merged sums, in which no cell is empty."""
    cells = classes * 2 * BINS * BUCKETS

    def read() -> Iterator[pa.RecordBatch]:
        yield to_table({Key(0, "rows", ALL_ROWS): (np.arange(BUCKETS), np.full(BUCKETS, 1e6))})
        for start in range(0, cells, RANGE_CELLS):
            numbers = np.arange(start, min(start + RANGE_CELLS, cells))
            yield to_table({Key(0, "scores", ALL_ROWS): (numbers, np.ones(len(numbers)))})

    families = (RowCount(), Classification(("auroc",), "multiclass", classes, "softmax"))
    metrics = ModelMetrics(merge_sums(read()), 0, families, 0.95)
    return f"{cells * 16 / 1e6:.0f} MB of merged sums, auroc {metrics.metrics['auroc']}"


def expire_versions(count: int) -> str:
    """Expire the oldest of so many versions, and look for a failed write in the newest."""
    with tempfile.TemporaryDirectory() as folder:
        uri = datasets.write(Path(folder, "d"), {"train": datasets.blobs(10)})
        first = manifests.read_current(uri)
        for number in range(2, count + 1):
            written = (datetime.now(UTC) - timedelta(days=count - number)).isoformat(timespec="seconds")
            provenance = first.provenance.model_copy(update={"written_at": written})
            text = first.model_copy(update={"number": number, "provenance": provenance}).to_json()
            Path(folder, "d", "versions", f"{number:08d}.json").write_text(text)
        started = time.perf_counter()
        newest = list(versions.iterate(uri, after=count - 1))
        looked = time.perf_counter() - started
        assert [version.number for version in newest] == [count]
        started = time.perf_counter()
        assert versions.expire(uri, keep=1, days=2 * count) == []
        return f"a failed write {looked:.2f} s, expiry of none {time.perf_counter() - started:.2f} s"


def run_within(limit: int, function: Callable[..., str], *arguments: Any) -> str:
    """Return what a function says, and its seconds; it may allocate `limit` bytes."""
    context = get_context("fork")
    results = context.Queue()
    process = context.Process(target=_run, args=(results, limit, function, arguments))
    process.start()
    text = results.get()
    process.join()
    return f"{function.__name__}: {text}, within {limit // MIB} MiB"


def _run(results: Queue[str], limit: int, function: Callable[..., str], arguments: tuple[Any, ...]) -> None:
    used = int(next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line).split()[1])
    resource.setrlimit(resource.RLIMIT_DATA, (used * 1024 + limit, used * 1024 + limit))
    started = time.perf_counter()
    try:
        text = function(*arguments)
    except (MemoryError, pa.ArrowMemoryError) as error:
        text = f"{type(error).__name__}"
    results.put(f"{text}, {time.perf_counter() - started:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--versions", type=int, default=10_000)
    args = parser.parse_args()
    for tasks in (args.tasks // 10, args.tasks):
        print(run_within(64 * MIB, gather_statistics, tasks), flush=True)
    for tasks in (args.tasks // 10, args.tasks):
        print(run_within(256 * MIB, merge_slices, tasks), flush=True)
    for tasks in (args.tasks // 10, args.tasks):
        print(run_within(256 * MIB, merge_range, tasks, args.classes), flush=True)
    print(run_within(2048 * MIB, compute_auroc, args.classes), flush=True)
    print(run_within(64 * MIB, expire_versions, args.versions), flush=True)


if __name__ == "__main__":
    main()
