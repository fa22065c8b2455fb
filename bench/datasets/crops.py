"""Compare the speed of reading random crops of photographs with torchvision, MosaicML Streaming and WebDataset.

    PYTHONPATH=plugins:. python bench/datasets/crops.py [--width 500] [--height 375] [--rows 1000] [--runs 3]

The images are parts of scikit-learn's two photographs of `width` x `height` pixels, as JPEG files of quality 90, with a
label. They are read in shuffled batches of 64 random crops, mirrored in half of the cases, uint8 (64, 3, 224, 224),
without training. The others run in `.venv-bench` (pip install torchvision mosaicml-streaming webdataset), each in a
DataLoader with a worker for each core, with torchvision's RandomResizedCrop. The limit is a pool with a thread for each
core that decodes the files and does nothing else. Readers alternate; figures are medians of the runs.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.trainer import datasets
from trainyard.trainer import CenterCrop, RandomResizedCrop
from trainyard.trainer.data.dataset import Dataset

BATCH, SIZE = 64, 224
CORES = len(os.sched_getaffinity(0))
PEERS = ("torchvision", "streaming", "webdataset")

PEER = """
import io, pathlib, sys, time
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

name, folder, batch, size, workers = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
crop = transforms.Compose(
    [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
)
files = sorted(pathlib.Path(folder, "photos").glob("*/*.jpg"))
torch.set_num_threads(1)

if name == "torchvision":
    data = ImageFolder(folder + "/photos", crop)
    loader = DataLoader(data, batch, shuffle=True, num_workers=workers, persistent_workers=True)
elif name == "streaming":
    from streaming import MDSWriter, StreamingDataset

    with MDSWriter(out=folder + "/mds", columns={"image": "bytes", "label": "int"}) as writer:
        for file in files:
            writer.write({"image": file.read_bytes(), "label": int(file.parent.name)})

    class Images(StreamingDataset):
        def __getitem__(self, index):
            row = super().__getitem__(index)
            return crop(Image.open(io.BytesIO(row["image"])).convert("RGB")), row["label"]

    data = Images(local=folder + "/mds", batch_size=batch, shuffle=True)
    loader = DataLoader(data, batch, num_workers=workers, persistent_workers=True)
else:
    import webdataset

    (pathlib.Path(folder) / "tar").mkdir()
    with webdataset.ShardWriter(folder + "/tar/%d.tar", maxcount=len(files) // workers, verbose=0) as writer:
        for number, file in enumerate(files):
            writer.write({"__key__": str(number), "jpg": file.read_bytes(), "cls": int(file.parent.name)})
    shards = sorted(str(file) for file in pathlib.Path(folder, "tar").iterdir())
    data = webdataset.WebDataset(shards, shardshuffle=len(shards)).shuffle(1000).decode("pil").to_tuple("jpg", "cls")
    loader = DataLoader(data.map_tuple(crop, None), batch, num_workers=workers, persistent_workers=True)

def read():
    return sum(len(image) for image, _ in loader)

assert read() == len(files)
print("READY", flush=True)
for _ in sys.stdin:
    started = time.perf_counter()
    assert read() == len(files)
    print("RATE", len(files) / (time.perf_counter() - started), flush=True)
"""


class Peer:
    """A reader in a process of its own environment, which reads an epoch on request."""

    def __init__(self, python: Path, name: str, folder: Path) -> None:
        arguments = [name, str(folder), str(BATCH), str(SIZE), str(CORES)]
        self._process = subprocess.Popen(
            [python, "-c", PEER, *arguments], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._receive("READY")

    def measure_rate(self) -> float:
        assert self._process.stdin
        self._process.stdin.write("epoch\n")
        self._process.stdin.flush()
        return float(self._receive("RATE"))

    def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def _receive(self, prefix: str) -> str:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith(prefix):
                return line.split()[-1]
        raise SystemExit("the process ended without an answer")


def write_photographs(folder: Path, rows: int, width: int, height: int) -> tuple[list[bytes], list[int]]:
    """Write parts of the photographs to FOLDER/LABEL/NUMBER.jpg; return the files and their labels."""
    rng = np.random.default_rng(0)
    scale = max(1.0, 1.2 * width / 640, 1.2 * height / 427)
    photographs = [Image.fromarray(each) for each in load_sample_images().images]
    photographs = [each.resize((round(each.width * scale), round(each.height * scale))) for each in photographs]
    files, labels = [], []
    for number in range(rows):
        label = int(rng.integers(2))
        photograph = photographs[label]
        left, top = rng.integers(photograph.width - width + 1), rng.integers(photograph.height - height + 1)
        file = io.BytesIO()
        photograph.crop((left, top, left + width, top + height)).save(file, "jpeg", quality=90)
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        (folder / str(label) / f"{number}.jpg").write_bytes(file.getvalue())
        files.append(file.getvalue())
        labels.append(label)
    return files, labels


def measure(read: Callable[[], object], rows: int) -> float:
    started = time.perf_counter()
    read()
    return rows / (time.perf_counter() - started)


def main() -> None:
    options = argparse.ArgumentParser()
    for name, value in {"width": 500, "height": 375, "rows": 1000, "runs": 3}.items():
        options.add_argument(f"--{name}", type=int, default=value)
    args = options.parse_args()
    torch.set_num_threads(CORES)  # the loader decodes in as many
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files, labels = write_photographs(folder / "photos", args.rows, args.width, args.height)
        uri = datasets.write(folder / "dataset", {"train": {"image": files, "label": np.array(labels)}}, 64, shards=4)
        data = Dataset(
            uri, batch_size=BATCH, decode={"image": CenterCrop(SIZE)}, augment={"image": RandomResizedCrop(SIZE)}
        )
        pool = ThreadPoolExecutor(CORES)

        def decode(data: bytes) -> None:
            Image.open(io.BytesIO(data)).load()

        def read() -> None:
            assert sum(len(batch["image"]) for batch in data) == args.rows

        readers: dict[str, Callable[[], float]] = {
            "decoder alone": lambda: measure(lambda: list(pool.map(decode, files, chunksize=8)), args.rows),
            "ours": lambda: measure(read, args.rows),
        }
        python = Path(__file__).parents[2] / ".venv-bench/bin/python"
        peers = {name: Peer(python, name, folder) for name in PEERS} if python.exists() else {}
        readers |= {name: peer.measure_rate for name, peer in peers.items()}
        rates: dict[str, list[float]] = {name: [] for name in readers}
        read()
        for _ in range(args.runs):
            for name, reader in readers.items():
                rates[name].append(reader())
        for peer in peers.values():
            peer.end()
    print(f"{args.width} x {args.height}, {sum(map(len, files)) / len(files):,.0f} bytes each")
    medians = {name: statistics.median(each) for name, each in rates.items()}
    for name, rate in medians.items():
        print(f"{name:16} {rate:8,.0f} images/s")
    print(f"ours / decoder alone {medians['ours'] / medians['decoder alone']:.2f}")
    if peers:
        print(f"ours / best peer     {medians['ours'] / max(medians[name] for name in peers):.2f}  (goal 1.5)")


if __name__ == "__main__":
    main()
