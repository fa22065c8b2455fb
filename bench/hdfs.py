"""How fast batches on HDFS are read into torch, against hdfs-native itself and against a local disk.

    . stack/local/env.sh && PYTHONPATH=plugins:. python bench/hdfs.py [--rows 2000000] [--runs 5] [--fresh]

On a Hadoop of its own. The same rows (32 float32 and an int64 label) on HDFS and on this machine's disk, batches of
1024 rows as torch tensors, one process, no training, shuffled. Turns alternate; figures are medians. Before each trial
4 GiB of memory are written to and given back: a virtual machine whose host takes free memory away pays for a page's
first use, ten times what writing the cache costs otherwise. `--fresh` leaves that out.

    raw            hdfs-native reads every shard into memory, as many at a time as ours, and nothing else
    by ranges      the loader where the cache cannot hold the split: each record batch is read by itself
    first epoch    the loader with an empty cache: shards come to the disk, verified, and are mapped from there
    next epoch     the same loader once more
    local          the loader on the local copy
"""

from __future__ import annotations

import argparse
import os
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

from stack.hadoop.cluster import Cluster
from tests.trainer import datasets
from trainyard import storage
from trainyard.schemas import manifest as manifests
from trainyard.trainer.data.cache import ShardCache
from trainyard.trainer.data.loader import Loader
from trainyard.trainer.data.order import Order, window_rows
from trainyard.trainer.data.split_reader import FETCHERS, SplitReader

BATCH, WIDTH = 1024, 32
ROWS_PER_BLOCK = 16384
WARM_BYTES = 4 << 30


def epoch(dataset: SplitReader) -> None:
    order = Order(dataset.blocks, BATCH, 0, window_rows(BATCH, dataset.row_bytes), shuffle=True)
    assert sum(len(share.columns["label"]) for share in Loader(dataset, order).epoch(0)) == dataset.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--fresh", action="store_true", help="memory as the machine happens to have it")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, Cluster.running(Path(folder, "hadoop")) as cluster:
        os.environ.update(cluster.environment())
        measure(Path(folder), storage.join(cluster.storage, "dataset"), chosen)


def measure(folder: Path, remote: str, chosen: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "x": rng.random((chosen.rows, WIDTH), dtype=np.float32),
        "label": np.arange(chosen.rows, dtype=np.int64) % 10,
    }
    local = datasets.write(folder / "dataset", {"train": columns}, ROWS_PER_BLOCK, shards=8)
    fs, path = fsspec.core.url_to_fs(remote)
    fs.put(local, path, recursive=True)
    manifest = manifests.read_current(remote)
    shards = manifest.split("train").shards
    cache = folder / "cache"

    def opened(uri: str, limit: int = 1 << 40) -> SplitReader:
        return SplitReader(uri, manifest, "train", ("x", "label"), cache=ShardCache(cache, limit))

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
            if not chosen.fresh:
                np.ones(WARM_BYTES, np.uint8)
            started = time.perf_counter()
            trial()
            if turn:
                seconds[name].append(time.perf_counter() - started)

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
