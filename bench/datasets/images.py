"""Compare the speed of reading compressed images as batches with MosaicML Streaming and with Pillow alone.

    PYTHONPATH=plugins:. python bench/datasets/images.py [--tiles 64] [--rows 4000] [--runs 5]

The images are random tiles of scikit-learn's two photographs, as JPEG files of quality 90, with a label. They are
read in shuffled batches of 64 as uint8 tensors (64, 3, tile, tile), without training. Every reader decodes the same
bytes with Pillow. The upper bound is a pool with a thread for each core that only decodes. MDS runs in `.venv-bench`
(pip install mosaicml-streaming), in a DataLoader without workers and with one for each core; the faster one counts.
Readers alternate; figures are medians of the runs.
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
from trainyard.trainer import decode_rgb
from trainyard.trainer.data.dataset import Dataset

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


def make_tiles(rows: int, size: int) -> tuple[list[bytes], np.ndarray]:
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


class Streaming:
    """MosaicML Streaming in a process of its own environment, which reads an epoch on request."""

    def __init__(self, python: Path, folder: str) -> None:
        self._process = subprocess.Popen(
            [python, "-c", MDS, folder, str(BATCH), str(CORES)], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._receive("READY")

    def measure_rate(self) -> float:
        self._send("epoch")
        return float(self._receive("RATE"))

    def use_next_loader(self) -> None:
        self._send("next")
        self._receive("READY")

    def end(self) -> None:
        self._send("next")
        self._process.wait()

    def _send(self, word: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _receive(self, prefix: str) -> str:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith(prefix):
                return line.split()[1]
        raise SystemExit("MDS: the process ended without an answer")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--tiles", type=int, default=64)
    options.add_argument("--rows", type=int, default=4000)
    options.add_argument("--runs", type=int, default=5)
    args = options.parse_args()
    torch.set_num_threads(CORES)  # the loader decodes in as many
    with tempfile.TemporaryDirectory() as folder:
        files, labels = make_tiles(args.rows, args.tiles)
        uri = datasets.write(Path(folder, "dataset"), {"train": {"image": files, "label": labels}}, 1024, shards=4)
        Path(folder, "files").write_bytes(b"".join(files))
        np.save(Path(folder, "ends.npy"), np.cumsum([len(file) for file in files]))
        np.save(Path(folder, "labels.npy"), labels)
        data = Dataset(uri, batch_size=BATCH, decode={"image": decode_rgb})
        pool = ThreadPoolExecutor(CORES)

        def read_dataset() -> float:
            started = time.perf_counter()
            assert sum(len(batch["image"]) for batch in data) == args.rows
            return args.rows / (time.perf_counter() - started)

        def decode() -> float:
            started = time.perf_counter()
            parts = [files[n : n + BATCH] for n in range(0, len(files), BATCH)]
            list(pool.map(lambda part: [decode_rgb(file) for file in part], parts))
            return args.rows / (time.perf_counter() - started)

        read_dataset(), decode()
        python = Path(__file__).parents[2] / ".venv-bench/bin/python"
        streaming = Streaming(python, folder) if python.exists() else None
        measurements: dict[str, list[float]] = {}
        for workers in (0, CORES) if streaming else (None,):
            for _ in range(args.runs):
                measurements.setdefault("Pillow alone", []).append(decode())
                measurements.setdefault("ours", []).append(read_dataset())
                if streaming:
                    measurements.setdefault(f"MDS, {workers} workers", []).append(streaming.measure_rate())
            if streaming and not workers:
                streaming.use_next_loader()
        if streaming:
            streaming.end()
    print(f"tiles of {args.tiles} x {args.tiles}, {sum(map(len, files)) / len(files):,.0f} bytes each")
    rates = {name: statistics.median(each) for name, each in measurements.items()}
    for name, rate in rates.items():
        print(f"{name:16} {rate:8,.0f} images/s")
    print(f"ours / Pillow alone {rates['ours'] / rates['Pillow alone']:.2f}")
    if best := max((rate for name, rate in rates.items() if name.startswith("MDS")), default=None):
        print(f"ours / MDS          {rates['ours'] / best:.2f}  (goal 1.0)")


if __name__ == "__main__":
    main()
