"""Compare the speed of reading variable-length rows as padded batches with a DataLoader, and measure the padding.

    PYTHONPATH=plugins:. python bench/datasets/sequences.py [--rows 200000] [--runs 5]

Rows have a log-normal number of int32 tokens (median 90, deviation 0.8, at most 2048) and a label. They are read in
shuffled batches of 256, in one process, without training. "By hand" is torch's DataLoader with pad_sequence and a
mask, on the same rows as tensors in memory. Tokens are counted without padding. Readers alternate; figures are
medians of the runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from tests.trainer import datasets
from trainyard.trainer.data.dataset import Dataset

BATCH = 256


def make_tokens(rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = np.minimum(rng.lognormal(4.5, 0.8, rows).astype(int) + 1, 2048)
    return [rng.integers(0, 30000, n, dtype=np.int32) for n in lengths]


def build_data_loader(rows: list[np.ndarray], labels: np.ndarray) -> DataLoader[dict[str, Tensor]]:
    def collate(part: list[tuple[Tensor, int]]) -> dict[str, Tensor]:
        padded = pad_sequence([row for row, _ in part], batch_first=True)
        lengths = torch.tensor([len(row) for row, _ in part])
        mask = torch.arange(padded.shape[1]) < lengths[:, None]
        return {"tokens": padded, "tokens_mask": mask, "label": torch.tensor([label for _, label in part])}

    data = list(zip(map(torch.from_numpy, rows), labels.tolist(), strict=True))
    return DataLoader(data, BATCH, shuffle=True, collate_fn=collate)  # type: ignore[arg-type]


def count_cells(batches: Iterable[dict[str, Tensor]]) -> Iterator[int]:
    for batch in batches:
        yield batch["tokens"].numel()


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--runs", type=int, default=5)
    args = options.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows, labels = make_tokens(args.rows), np.arange(args.rows) % 10
        uri = datasets.write(Path(folder), {"train": {"tokens": rows, "label": labels}}, 4096, shards=4)
        readers: dict[str, Iterable[dict[str, Tensor]]] = {
            "ours": Dataset(uri, batch_size=BATCH),
            "ours, bucketed": Dataset(uri, batch_size=BATCH, bucket_by="tokens"),
            "by hand": build_data_loader(rows, labels),
        }
        total = sum(map(len, rows))
        rates: dict[str, list[float]] = {name: [] for name in readers}
        padded = {}
        for turn in range(args.runs + 1):
            for name, reader in readers.items():
                started = time.perf_counter()
                padded[name] = sum(count_cells(reader)) / total
                if turn:
                    rates[name].append(total / (time.perf_counter() - started))
    for name, rate in rates.items():
        print(
            f"{name:16} {statistics.median(rate) / 1e6:7.1f} M tokens/s, padded to {padded[name]:.2f} times the tokens"
        )
    pairs = zip(rates["ours"], rates["by hand"], strict=True)
    print(f"ours / by hand             {statistics.median(a / b for a, b in pairs):.2f}")
    pairs = zip(rates["ours, bucketed"], rates["by hand"], strict=True)
    print(f"ours, bucketed / by hand   {statistics.median(a / b for a, b in pairs):.2f}")


if __name__ == "__main__":
    main()
