"""Write the source of all jobs: 70,000 images of 28 x 28 uint8 in ten classes, made from a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PIXELS, CLASSES = 784, 10
TRAIN_ROWS, TEST_ROWS, ROWS_PER_FILE = 60_000, 10_000, 7_500
CONTRAST, NOISE = 9.0, 60.0
"""Standard deviations: of the squares of 4 x 4 pixels that make a class, and of the noise in each pixel."""


def write(folder: Path, wrong_label: bool = False) -> Path:
    """Write `fold=train` and `fold=test` below the folder, unless they exist.

    Args:
        folder: Where the source is written.
        wrong_label: Whether one row in the middle of the training rows has the label 10, which is no class.

    Returns:
        The folder.
    """
    done = folder / "_SUCCESS"
    if done.exists():
        return folder
    rng = np.random.default_rng(0)
    squares = rng.normal(128, CONTRAST, (CLASSES, 7, 7))
    templates = squares.repeat(4, axis=1).repeat(4, axis=2).reshape(CLASSES, PIXELS)
    for fold, rows in (("train", TRAIN_ROWS), ("test", TEST_ROWS)):
        target = folder / f"fold={fold}"
        target.mkdir(parents=True, exist_ok=True)
        labels = rng.integers(0, CLASSES, rows)
        for number, start in enumerate(range(0, rows, ROWS_PER_FILE)):
            part = labels[start : start + ROWS_PER_FILE]
            noise = rng.normal(0, NOISE, (len(part), PIXELS))
            images = np.clip(templates[part] + noise, 0, 255).astype(np.uint8)
            if wrong_label and fold == "train" and start <= rows // 2 < start + ROWS_PER_FILE:
                part[rows // 2 - start] = CLASSES
            lists = pa.ListArray.from_arrays(
                np.arange(len(part) + 1, dtype=np.int32) * PIXELS, pa.array(images.ravel())
            )
            pq.write_table(pa.table({"image": lists, "label": part}), target / f"part-{number}.parquet")
    done.touch()
    return folder
