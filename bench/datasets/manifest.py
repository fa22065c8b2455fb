"""Measure the manifest of a very large dataset: to commit it, to load it, and to select a part of it.

    PYTHONPATH=plugins:. python bench/datasets/manifest.py [--shards 100000] [--batches 8]

Prints seconds and the size of the file; "json" is the time in which Python's json module parses the same bytes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import Column, DatasetManifest, Partition, Provenance, Shard, Split, Statistics

ROWS = 4096
WRITES = 100


def build_manifest(shards: int, batches: int) -> DatasetManifest:
    """Return the manifest of a dataset of `shards` files in 100 partitions."""
    provenance = Provenance(application="application_1700000000000_0001", written_at="2026-01-01T00:00:00+00:00")
    files = tuple(
        Shard(
            path=f"shards/{n * WRITES // shards:016x}/train-{n:05d}-000-{n}.arrow", rows=ROWS * batches,
            bytes=500_000 * batches, sha256=f"{n:064x}", begin=500, batch_rows=ROWS, lengths=[500_000] * batches,
            crc32s=[2**31] * batches,
        ) for n in range(shards)
    )  # fmt: skip
    partitions = {
        f"day {n:03d}": Partition(directory=f"shards/{n:016x}", version=n + 1, rows=1, provenance=provenance)
        for n in range(WRITES)
    }
    columns = (Column(name="x", kind="tensor", type="float", shape=(32,)),)
    splits = {"train": Split(rows=ROWS * batches * shards, shards=files, statistics={"x": Statistics(count=1)})}
    return DatasetManifest(
        number=WRITES, columns=columns, splits=splits, partitions=partitions, spark_schema="{}", provenance=provenance,
        content_hash=manifests.content_hash(columns, splits),
    )  # fmt: skip


def measure(call: Callable[[], Any]) -> float:
    """Return the median seconds of five calls."""
    times = []
    for _ in range(5):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=8, help="record batches in each shard")
    args = parser.parse_args()
    manifest = build_manifest(args.shards, args.batches)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        manifests.commit(folder, manifest)
        print(f"commit: {time.perf_counter() - started:.2f} s")
        text = manifest.to_json()
        print(f"{len(text) / 1e6:.0f} MB; json alone: {measure(lambda: json.loads(text)):.2f} s")
        print(f"load: {measure(lambda: manifests.read_current(folder)):.2f} s (goal 1)")
        print(f"partitions since a version: {measure(lambda: manifest.since(WRITES - 1)):.2f} s")


if __name__ == "__main__":
    main()
