"""How fast compressed images become batches, against MosaicML Streaming and against Pillow itself.

    PYTHONPATH=plugins:. python bench/images.py [--tiles 64] [--rows 4000] [--runs 5]

Tiles cut at random from scikit-learn's two photographs, as JPEG files of quality 90 beside a label; shuffled batches
of 64 images as uint8 tensors (64, 3, tile, tile), no training. Every reader decodes the same bytes by Pillow. The
limit is a pool of as many threads as there are cores that does nothing but decode. MDS runs in `.venv-bench` (pip
install mosaicml-streaming), in a DataLoader without workers and with one a core, and the better counts. Readers take
turns; every figure is the median of the runs.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.trainer import datasets
from trainyard.trainer.data.dataset import Dataset
from trainyard.trainer.data.images import rgb

BATCH = 64
CORES = len(os.sched_getaffinity(0))

MDS = """
import io, sys, time
import numpy as np, torch
from PIL import Image
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader

folder, batch, cores = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data, labels = open(folder + "/files", "rb").read(), np.load(folder + "/labels.npy")
ends = np.load(folder + "/ends.npy")
with MDSWriter(out=folder + "/mds", columns={"image": "bytes", "label": "int64"}) as writer:
    for begin, end, label in zip([0, *ends], ends, labels):
        writer.write({"image": data[begin:end], "label": label})

class Images(StreamingDataset):
    def __getitem__(self, index):
        row = super().__getitem__(index)
        image = Image.open(io.BytesIO(row["image"])).convert("RGB")
        return np.asarray(image).transpose(2, 0, 1), row["label"]

torch.set_num_threads(1)
for workers in (0, cores):
    data = Images(local=folder + "/mds", batch_size=batch, shuffle=True)
    loader = DataLoader(data, batch, num_workers=workers, persistent_workers=workers > 0)
    sum(len(y) for _, y in loader)
    print("READY", workers, flush=True)
    for line in iter(sys.stdin.readline, "next\\n"):
        started = time.perf_counter()
        assert sum(len(y) for _, y in loader) == len(labels)
        print("RATE", len(labels) / (time.perf_counter() - started), flush=True)
"""


def tiles(rows: int, size: int) -> tuple[list[bytes], np.ndarray]:
    rng = np.random.default_rng(0)
    photographs = load_sample_images().images
    labels = rng.integers(0, 2, rows)
    files = []
    for label in labels:
        photograph = photographs[label]
        top, left = (int(rng.integers(0, extent - size + 1)) for extent in photograph.shape[:2])
        file = io.BytesIO()
        Image.fromarray(photograph[top : top + size, left : left + size]).save(file, "jpeg", quality=90)
        files.append(file.getvalue())
    return files, labels


class Peer:
    """MosaicML Streaming in its own environment, asked for one epoch at a time."""

    def __init__(self, python: Path, folder: str) -> None:
        self._process = subprocess.Popen(
            [python, "-c", MDS, folder, str(BATCH), str(CORES)], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._answer("READY")

    def rate(self) -> float:
        self._say("epoch")
        return float(self._answer("RATE"))

    def next(self) -> None:
        self._say("next")
        self._answer("READY")

    def end(self) -> None:
        self._say("next")
        self._process.wait()

    def _say(self, word: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _answer(self, sign: str) -> str:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith(sign):
                return line.split()[1]
        raise SystemExit("MDS: it ended without an answer")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--tiles", type=int, default=64)
    options.add_argument("--rows", type=int, default=4000)
    options.add_argument("--runs", type=int, default=5)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        files, labels = tiles(chosen.rows, chosen.tiles)
        uri = datasets.write(Path(folder, "dataset"), {"train": {"image": files, "label": labels}}, 1024, shards=4)
        Path(folder, "files").write_bytes(b"".join(files))
        np.save(Path(folder, "ends.npy"), np.cumsum([len(file) for file in files]))
        np.save(Path(folder, "labels.npy"), labels)
        data = Dataset(uri, batch_size=BATCH, decode={"image": rgb})
        pool = ThreadPoolExecutor(CORES)

        def ours() -> float:
            started = time.perf_counter()
            assert sum(len(batch["image"]) for batch in data) == chosen.rows
            return chosen.rows / (time.perf_counter() - started)

        def pillow() -> float:
            started = time.perf_counter()
            parts = [files[n : n + BATCH] for n in range(0, len(files), BATCH)]
            list(pool.map(lambda part: [rgb(file) for file in part], parts))
            return chosen.rows / (time.perf_counter() - started)

        ours(), pillow()
        python = Path(__file__).parent.parent / ".venv-bench/bin/python"
        peer = Peer(python, folder) if python.exists() else None
        found: dict[str, list[float]] = {}
        for workers in (0, CORES) if peer else (None,):
            for _ in range(chosen.runs):
                found.setdefault("Pillow alone", []).append(pillow())
                found.setdefault("ours", []).append(ours())
                if peer:
                    found.setdefault(f"MDS, {workers} workers", []).append(peer.rate())
            if peer and not workers:
                peer.next()
        if peer:
            peer.end()
    print(f"tiles of {chosen.tiles} x {chosen.tiles}, {sum(map(len, files)) / len(files):,.0f} bytes each")
    rates = {name: statistics.median(each) for name, each in found.items()}
    for name, rate in rates.items():
        print(f"{name:16} {rate:8,.0f} images/s")
    print(f"ours / Pillow alone {rates['ours'] / rates['Pillow alone']:.2f}")
    if best := max((rate for name, rate in rates.items() if name.startswith("MDS")), default=None):
        print(f"ours / MDS          {rates['ours'] / best:.2f}  (goal 1.0)")


if __name__ == "__main__":
    main()
