"""Compare the speed of reading a dataset on HDFS into torch with hdfs-native alone and with a local disk.

    . stack/local/env.sh && PYTHONPATH=plugins:. python bench/datasets/hdfs.py [--rows 2000000] [--runs 5] [--fresh]

The benchmark starts its own Hadoop. The same rows (32 float32 and an int64 label) are on HDFS and on this machine's
disk, and are read as shuffled batches of 1024 rows as torch tensors, in one process, without training. Readers
alternate; figures are medians. Before each trial 4 GiB of memory are written and released: on a virtual machine whose
host reclaims free memory, the first use of a page makes writing the cache ten times as slow. `--fresh` skips this.

    raw            hdfs-native reads every shard into memory, with as many requests at a time as the loader
    by ranges      the loader with a split larger than the cache: each record batch is read by itself
    first epoch    the loader with an empty cache: shards are downloaded, verified, and mapped from the disk
    next epoch     the same loader again
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
from trainyard.files import storage, uris
from trainyard.schemas.datasets import manifest as manifests
from trainyard.trainer.data.loader import Loader
from trainyard.trainer.data.order import Order, window_steps
from trainyard.trainer.data.reading.cache import ShardCache
from trainyard.trainer.data.reading.split_reader import FETCHERS, SplitReader

BATCH, WIDTH = 1024, 32
ROWS_PER_BLOCK = 16384
WARM_BYTES = 4 << 30


def read_epoch(dataset: SplitReader) -> None:
    order = Order(dataset.blocks, BATCH, 0, window_steps(BATCH, dataset.row_bytes), shuffle=True)
    assert sum(len(batch.columns["label"]) for batch in Loader(dataset, order).epoch(0)) == dataset.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--fresh", action="store_true", help="do not write and release memory before each trial")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, Cluster.launch(Path(folder, "hadoop")) as cluster:
        os.environ.update(cluster.build_environment())
        measure(Path(folder), uris.join(cluster.storage, "dataset"), args)


def measure(folder: Path, remote: str, args: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "x": rng.random((args.rows, WIDTH), dtype=np.float32),
        "label": np.arange(args.rows, dtype=np.int64) % 10,
    }
    local = datasets.write(folder / "dataset", {"train": columns}, ROWS_PER_BLOCK, shards=8)
    fs, path = fsspec.core.url_to_fs(remote)
    fs.put(local, path, recursive=True)
    manifest = manifests.read_current(remote)
    shards = manifest.split("train").shards
    cache = folder / "cache"

    def open_split(uri: str, limit: int = 1 << 40) -> SplitReader:
        return SplitReader(uri, manifest, "train", ("x", "label"), cache=ShardCache(cache, limit))

    def read_raw() -> None:
        with ThreadPoolExecutor(FETCHERS) as pool:
            sizes = pool.map(lambda shard: len(storage.read(uris.join(remote, shard.path))), shards)
            assert sum(sizes) == sum(shard.bytes for shard in shards)

    local_reader, cached_reader = open_split(local), open_split(remote)
    trials: dict[str, Callable[[], None]] = {
        "raw": read_raw,
        "by ranges": lambda: read_epoch(open_split(remote, limit=1)),
        "first epoch": lambda: read_epoch(cached_reader),
        "next epoch": lambda: read_epoch(cached_reader),
        "local": lambda: read_epoch(local_reader),
    }
    seconds: dict[str, list[float]] = {name: [] for name in trials}
    for turn in range(args.runs + 1):
        shutil.rmtree(cache, ignore_errors=True)
        cached_reader = open_split(remote)
        for name, trial in trials.items():
            if not args.fresh:
                np.ones(WARM_BYTES, np.uint8)
            started = time.perf_counter()
            trial()
            if turn:
                seconds[name].append(time.perf_counter() - started)

    megabytes = sum(shard.bytes for shard in shards) / 2**20
    for name, times in seconds.items():
        print(f"{name:12} {megabytes / statistics.median(times):8.0f} MB/s")

    def compute_ratio(name: str, reference: str) -> float:
        return statistics.median(b / a for a, b in zip(seconds[name], seconds[reference], strict=True))

    print(f"by ranges / raw        {compute_ratio('by ranges', 'raw'):.2f}  (goal 0.9)")
    print(f"first epoch / raw      {compute_ratio('first epoch', 'raw'):.2f}  (goal 0.9)")
    print(f"next epoch / local     {compute_ratio('next epoch', 'local'):.2f}")


if __name__ == "__main__":
    main()
