"""Measure the time from opening a split to its first shuffled batch, and compare it with a hash of all its bytes.

    PYTHONPATH=plugins:. python -m bench.datasets.first_batch [--rows 4000000 40000000 200000000]

A row has 32 float32 and an int64 label. A split larger than the smallest one has hard links of the same shards, so that
its size costs no disk space; the reader cannot tell. Each split is read in a process of its own. The limit is a second;
the hash is the time that a sha256 of the bytes takes, from the speed at which it hashes one shard in the same run.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.trainer import datasets
from trainyard.schemas.datasets import manifest as manifests
from trainyard.trainer.data.loader import Loader, build_order
from trainyard.trainer.data.reading.split_reader import SplitReader

BATCH, WIDTH, ROWS_PER_BLOCK = 1024, 32, 8192
LIMIT_SECONDS = 1.0


def grow(source: str, target: Path, times: int) -> None:
    """Write a dataset whose split "train" has the shards of `source`, linked `times` times."""
    manifest = manifests.read_current(source)
    split = manifest.split("train")
    shards = []
    for number in range(times):
        for shard in split.shards:
            path = f"shards/{number}/{Path(shard.path).name}"
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            os.link(Path(source) / shard.path, target / path)
            shards.append(shard._replace(path=path))
    grown = split.model_copy(update={"shards": tuple(shards), "rows": split.rows * times})
    document = manifest.model_copy(update={"splits": {"train": grown}})
    (target / "manifest.json").write_text(document.to_json())


def measure(uri: str) -> float:
    """Return the seconds until the first batch of a dataset."""
    started = time.perf_counter()
    reader = SplitReader(uri, manifests.read_current(uri), "train", ("x", "label"))
    batch = next(iter(Loader(reader, build_order(reader, BATCH, 0, True, None, None)).epoch(0)))
    assert batch.rows == BATCH
    return time.perf_counter() - started


def main() -> None:
    """Print the seconds for each size, and exit with 1 if one is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[4_000_000, 40_000_000, 200_000_000])
    parser.add_argument("--uri", help="measure this dataset, and print the seconds alone")
    arguments = parser.parse_args()
    if arguments.uri:
        print(measure(arguments.uri))
        return
    missed = False
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        smallest = min(arguments.rows)
        rng = np.random.default_rng(0)
        columns = {"x": rng.random((smallest, WIDTH), np.float32), "label": rng.integers(0, 10, smallest)}
        source = datasets.write(Path(folder, "source"), {"train": columns}, ROWS_PER_BLOCK, shards=4)
        shard = manifests.read_current(source).split("train").shards[0]
        started = time.perf_counter()
        hashlib.sha256(Path(source, shard.path).read_bytes()).hexdigest()
        bytes_per_second = shard.bytes / (time.perf_counter() - started)
        for rows in arguments.rows:
            target = Path(folder, str(rows))
            grow(source, target, rows // smallest)
            command = [sys.executable, "-m", "bench.datasets.first_batch", "--uri", str(target)]
            seconds = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            hashed = 4 * (rows // smallest) * shard.bytes / bytes_per_second
            print(f"{rows:>12,} rows  {seconds:6.2f} s  (limit {LIMIT_SECONDS:g}; a hash of all shards {hashed:.1f} s)")
            missed |= seconds > LIMIT_SECONDS
    sys.exit(missed)


if __name__ == "__main__":
    main()
