"""Compare the speed of reading a dataset into torch with copies in memory and with other formats.

    PYTHONPATH=plugins:. python bench/datasets/read.py [--rows 2000000] [--runs 5]

The same rows (32 float32 and an int64 label) are stored as a dataset, Parquet, MDS and Lance, and are read in batches
of 1024 rows as torch tensors, in one process, without training. "Ours" is the loader as training uses it; its upper
bounds are

    copy           the same bytes copied from the memory map, batch by batch
    copy, sum      each batch is also summed
    copy, add      1 is also added to each batch in place
    index_select   a gather over the same maps: record batches in random order, rows shuffled in each, with both
                   orders computed beforehand

Readers alternate, and figures are medians of the runs; slow readers read a part of the rows once. MDS and Lance run
in `.venv-bench` (pip install mosaicml-streaming pylance), Petastorm in `.venv-petastorm` (pip install
petastorm==0.12.1 'pyarrow==11.0.0' 'numpy<2' 'pandas<2' torch 'setuptools<81'); a reader without its environment is
not run.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from tests.trainer import datasets
from trainyard.schemas.datasets import manifest as manifests
from trainyard.trainer.data.loader import Loader
from trainyard.trainer.data.order import Order, window_steps
from trainyard.trainer.data.reading.split_reader import SplitReader

BATCH, WIDTH = 1024, 32
ROWS_PER_BLOCK = 16384
SLOW_ROWS = 100_000

Reader = Callable[[], int]
Use = Callable[[Tensor, Tensor], object]
"""What is done with the rows and labels of a batch."""


def add_in_place(x: Tensor, y: Tensor) -> None:
    x.add_(1)
    y.add_(1)


USES: dict[str, Use] = {"": lambda x, y: None, ", sum": lambda x, y: (x.sum(), y.sum()), ", add": add_in_place}


def build_loader(dataset: SplitReader, shuffle: bool, use: Use = USES[""]) -> Reader:
    order = Order(dataset.blocks, BATCH, 0, window_steps(BATCH, dataset.row_bytes), shuffle)
    loader = Loader(dataset, order)

    def read() -> int:
        count = 0
        for batch in loader.epoch(0):
            use(batch.columns["x"], batch.columns["label"])
            count += len(batch.columns["label"])
        return count

    return read


def build_copy(dataset: SplitReader, use: Use) -> Reader:
    def read() -> int:
        count = 0
        for number in range(len(dataset.blocks)):
            block = dataset.block(number)
            for start in range(0, len(block["label"]), BATCH):
                x, y = np.array(block["x"][start : start + BATCH]), np.array(block["label"][start : start + BATCH])
                use(torch.from_numpy(x), torch.from_numpy(y))
                count += len(y)
        return count

    return read


def build_index_select(dataset: SplitReader) -> Reader:
    rng = np.random.default_rng(0)
    order = rng.permutation(len(dataset.blocks)).tolist()
    orders = [torch.from_numpy(rng.permutation(rows)) for rows in dataset.blocks]
    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")

    def read() -> int:
        count = 0
        for number in order:
            block, rows = dataset.block(number), orders[number]
            x, y = torch.from_numpy(block["x"]), torch.from_numpy(block["label"])
            for start in range(0, len(y), BATCH):
                part = rows[start : start + BATCH]
                x.index_select(0, part)
                count += len(y.index_select(0, part))
        return count

    return read


def build_parquet_reader(path: Path) -> Reader:
    def batches() -> Iterator[int]:
        for batch in pq.ParquetFile(path).iter_batches(BATCH):
            x = batch.column("x").flatten().to_numpy().reshape(-1, WIDTH)
            torch.from_numpy(np.array(x))
            yield len(torch.from_numpy(np.array(batch.column("label").to_numpy())))

    return lambda: sum(batches())


PEERS = {
    "MDS": (
        ".venv-bench",
        """
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader
import shutil
out = folder + "/mds"
with MDSWriter(out=out, columns={"x": "ndarray:float32:32", "label": "int64"}) as w:
    for i in range(rows): w.write({"x": x[i], "label": y[i]})
data = StreamingDataset(local=out, batch_size=1024, shuffle=False)
t = time.perf_counter(); n = sum(len(b["label"]) for b in DataLoader(data, 1024)); report(n, t)
""",
    ),
    "Lance": (
        ".venv-bench",
        """
import pyarrow as pa, lance
from lance.torch.data import LanceDataset
table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 32), "label": y})
data = lance.write_dataset(table, folder + "/d.lance", mode="overwrite")
t = time.perf_counter(); n = sum(len(b["label"]) for b in LanceDataset(data, batch_size=1024)); report(n, t)
""",
    ),
    "Petastorm": (
        ".venv-petastorm",
        """
import pyarrow as pa, pyarrow.parquet as pq
from petastorm import make_batch_reader
from petastorm.pytorch import BatchedDataLoader
lists = pa.ListArray.from_arrays(pa.array(np.arange(rows + 1, dtype=np.int32) * 32), pa.array(x.ravel()))
pq.write_table(pa.table({"x": lists, "label": y}), folder + "/p.parquet", row_group_size=16384)
where = "file://" + folder + "/p.parquet"
with make_batch_reader(where, num_epochs=1, reader_pool_type="thread", workers_count=2) as r:
    t = time.perf_counter(); n = sum(len(b["label"]) for b in BatchedDataLoader(r, batch_size=1024)); report(n, t)
""",
    ),
}
HEAD = """
import sys, time, numpy as np
rows, folder = int(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(0); x = rng.random((rows, 32), dtype=np.float32); y = np.arange(rows) % 10
def report(n, started): print("RATE", n / (time.perf_counter() - started))
"""


def measure_peer(name: str, rows: int, folder: str) -> float | str:
    """Return the rows/s of another reader in its own environment, or why it was not measured."""
    home, body = PEERS[name]
    python = Path(__file__).parents[2] / home / "bin/python"
    if not python.exists():
        return f"no {home}"
    process = subprocess.run(
        [python, "-c", HEAD + body, str(rows), folder], capture_output=True, text=True, timeout=900, check=False
    )
    rates = [float(line.split()[1]) for line in process.stdout.splitlines() if line.startswith("RATE")]
    return rates[0] if rates else process.stderr.strip().splitlines()[-1]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=2_000_000)
    options.add_argument("--runs", type=int, default=5)
    args = options.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(0)
        columns = {
            "x": rng.random((args.rows, WIDTH), dtype=np.float32),
            "label": np.arange(args.rows, dtype=np.int64) % 10,
        }
        uri = datasets.write(Path(folder, "dataset"), {"train": columns}, ROWS_PER_BLOCK, shards=4)
        flat = pa.FixedSizeListArray.from_arrays(pa.array(columns["x"].ravel()), WIDTH)
        pq.write_table(pa.table({"x": flat, "label": columns["label"]}), Path(folder, "rows.parquet"))
        dataset = SplitReader(uri, manifests.read_current(uri), "train", ("x", "label"))
        readers = {
            **{f"ours, sequential{name}": build_loader(dataset, False, use) for name, use in USES.items()},
            **{f"copy{name}": build_copy(dataset, use) for name, use in USES.items()},
            "ours, shuffled": build_loader(dataset, shuffle=True),
            "index_select": build_index_select(dataset),
            "Parquet (pyarrow)": build_parquet_reader(Path(folder, "rows.parquet")),
        }
        seconds: dict[str, list[float]] = {name: [] for name in readers}
        for turn in range(args.runs + 1):
            for name, read in readers.items():
                started = time.perf_counter()
                assert read() == args.rows
                if turn:
                    seconds[name].append(time.perf_counter() - started)
        rates: dict[str, float | str] = {n: args.rows / statistics.median(s) for n, s in seconds.items()}
        for name in PEERS:
            rates[name] = measure_peer(name, args.rows if name == "Lance" else SLOW_ROWS, folder)

    def compute_ratio(name: str, reference: str) -> float:
        pairs = [b / a for a, b in zip(seconds[name], seconds[reference], strict=True)]
        return statistics.median(pairs)

    for name, rate in rates.items():
        print(f"{name:22} {rate / 1e6:8.3f} M rows/s" if isinstance(rate, float) else f"{name:22} not run: {rate}")
    print(f"sequential / copy          {compute_ratio('ours, sequential', 'copy'):.2f}  (goal 0.8)")
    print(f"the same, sum              {compute_ratio('ours, sequential, sum', 'copy, sum'):.2f}")
    print(f"the same, add              {compute_ratio('ours, sequential, add', 'copy, add'):.2f}")
    print(f"shuffled / index_select    {compute_ratio('ours, shuffled', 'index_select'):.2f}  (goal 0.9)")
    own = rates["ours, sequential"]
    for name in ("Parquet (pyarrow)", *PEERS):
        rate = rates[name]
        if isinstance(rate, float) and isinstance(own, float):
            print(f"sequential / {name:13} {own / rate:8.1f}")


if __name__ == "__main__":
    main()
