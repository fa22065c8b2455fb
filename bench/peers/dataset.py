"""Write the source of all jobs: rows of uint8 values in ten classes, made from a seed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.scenarios import Workload

CLASSES, BLOCK = 10, 4
NOISE = 60.0
"""The standard deviation of the noise in each value."""


def write(folder: Path, workload: Workload, wrong_label: bool = False) -> Path:
    """Write `fold=train` and `fold=test` below the folder, unless they exist.

    Args:
        folder: Where the source is written.
        workload: What is written. A row has the values of its class, the same in squares of 4 x 4 pixels if it is an
            image, else in 4 neighbors, and noise.
        wrong_label: Whether one row in the middle of the training rows has the label 10, which is no class.

    Returns:
        The folder.
    """
    done = folder / "_SUCCESS"
    if done.exists():
        return folder
    rng = np.random.default_rng(0)
    side = math.isqrt(workload.values)
    shape = (side, side) if side % BLOCK == 0 else (1, workload.values)
    blocks = rng.normal(128, workload.contrast, (CLASSES, -(-shape[0] // BLOCK), shape[1] // BLOCK))
    templates = blocks.repeat(BLOCK, axis=1)[:, : shape[0]].repeat(BLOCK, axis=2).reshape(CLASSES, workload.values)
    rows_per_file = workload.rows // workload.files
    for fold, rows in (("train", workload.rows), ("test", workload.test_rows)):
        target = folder / f"fold={fold}"
        target.mkdir(parents=True, exist_ok=True)
        labels = rng.integers(0, CLASSES, rows)
        for number, start in enumerate(range(0, rows, rows_per_file)):
            part = labels[start : start + rows_per_file]
            noise = rng.normal(0, NOISE, (len(part), workload.values))
            images = np.clip(templates[part] + noise, 0, 255).astype(np.uint8)
            if wrong_label and fold == "train" and start <= rows // 2 < start + rows_per_file:
                part[rows // 2 - start] = CLASSES
            lists = pa.ListArray.from_arrays(
                np.arange(len(part) + 1, dtype=np.int32) * workload.values, pa.array(images.ravel())
            )
            pq.write_table(pa.table({"image": lists, "label": part}), target / f"part-{number}.parquet")
    done.touch()
    return folder
