"""How fast batches on HDFS are read into torch, against hdfs-native itself and against a local disk.

    make cluster && . .run/hadoop/env.sh
    PYTHONPATH=plugins:. python bench/hdfs.py --storage hdfs://localhost:PORT [--rows 2000000] [--runs 5]

The same rows (32 float32 and an int64 label) on HDFS and on this machine's disk, batches of 1024 rows as torch
tensors, one process, no training, shuffled. Turns alternate; figures are medians.

    raw            hdfs-native reads every shard into memory, as many at a time as ours, and nothing else
    by ranges      the loader where the cache cannot hold the split: each record batch is read by itself
    first epoch    the loader with an empty cache: shards come to the disk, verified, and are mapped from there
    next epoch     the same loader once more
    local          the loader on the local copy
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import torch

from tests.trainer import datasets
from trainer.cache import ShardCache
from trainer.dataset import FETCHERS, Dataset
from trainer.loader import Loader
from trainer.order import Order, window_rows
from trainyard.contract import manifest as manifests
from trainyard.contract import storage

BATCH, WIDTH = 1024, 32
ROWS_PER_BLOCK = 16384


def epoch(dataset: Dataset) -> None:
    order = Order(dataset.blocks, BATCH, 0, window_rows(BATCH, dataset.row_bytes), shuffle=True)
    assert sum(len(share.columns["label"]) for share in Loader(dataset, order).epoch(0)) == dataset.rows


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--storage", required=True, help="hdfs://HOST:PORT")
    options.add_argument("--rows", type=int, default=2_000_000)
    options.add_argument("--runs", type=int, default=5)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    remote = storage.join(chosen.storage, "bench")
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        columns = {
            "x": rng.random((chosen.rows, WIDTH), dtype=np.float32),
            "label": np.arange(chosen.rows, dtype=np.int64) % 10,
        }
        local = datasets.write(Path(folder, "batches"), {"train": columns}, ROWS_PER_BLOCK, shards=8)
        storage.remove(remote)
        fs, path = fsspec.core.url_to_fs(remote)
        fs.put(local, path, recursive=True)
        manifest = manifests.current(remote)
        shards = manifest.split("train").shards
        cache = Path(folder, "cache")

        def opened(uri: str, limit: int = 1 << 40) -> Dataset:
            return Dataset(uri, manifest, "train", ("x", "label"), cache=ShardCache(cache, limit))

        def raw() -> None:
            with ThreadPoolExecutor(FETCHERS) as pool:
                found = pool.map(lambda shard: len(storage.read(storage.join(remote, shard.path))), shards)
                assert sum(found) == sum(shard.bytes for shard in shards)

        on_disk, kept = opened(local), opened(remote)
        trials: dict[str, Callable[[], None]] = {
            "raw": raw,
            "by ranges": lambda: epoch(opened(remote, limit=1)),
            "first epoch": lambda: epoch(kept),
            "next epoch": lambda: epoch(kept),
            "local": lambda: epoch(on_disk),
        }
        seconds: dict[str, list[float]] = {name: [] for name in trials}
        for turn in range(chosen.runs + 1):
            shutil.rmtree(cache, ignore_errors=True)
            kept = opened(remote)
            for name, trial in trials.items():
                started = time.perf_counter()
                trial()
                if turn:
                    seconds[name].append(time.perf_counter() - started)
        storage.remove(remote)

    megabytes = sum(shard.bytes for shard in shards) / 2**20
    for name, taken in seconds.items():
        print(f"{name:12} {megabytes / statistics.median(taken):8.0f} MB/s")

    def ratio(of: str, to: str) -> float:
        return statistics.median(b / a for a, b in zip(seconds[of], seconds[to], strict=True))

    print(f"by ranges / raw        {ratio('by ranges', 'raw'):.2f}  (goal 0.9)")
    print(f"first epoch / raw      {ratio('first epoch', 'raw'):.2f}  (goal 0.9)")
    print(f"next epoch / local     {ratio('next epoch', 'local'):.2f}")


if __name__ == "__main__":
    main()
