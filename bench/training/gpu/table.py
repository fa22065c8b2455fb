"""Ways of small rows to the device."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from bench.training.gpu.loops import WARM_STEPS, BareLoop, Case, Clock, print_ratio, run_ours, store
from trainyard.trainer.model.recipe import Batch
from trainyard.trainer.world import World

RESIDENT_GOAL = 0.9
READER_GOAL = 1.0
WORKERS = 4


def measure_table(small: bool, rounds: int) -> None:
    """Train on rows whose network takes less time than their way to the device."""
    rows, repeats, batch, width = (20_000, 2, 512, 64) if small else (200_000, 10, 8192, 512)
    rng = np.random.default_rng(0)
    values = {"x": rng.normal(size=(rows, 100)).astype(np.float32), "label": rng.integers(0, 10, rows)}
    case = Case(
        "table", "x", lambda: build_network(width), lambda output, batch: F.cross_entropy(output, batch["label"]),
        values, batch,
    )  # fmt: skip
    steps = rows * repeats // batch
    in_memory = {name: torch.from_numpy(np.concatenate([array] * repeats)) for name, array in values.items()}
    seconds: dict[str, list[float]] = {"limit": [], "gpu_cache_gb": [], "stored": [], "DataLoader": []}
    first_steps = []
    with tempfile.TemporaryDirectory() as folder:
        data = store(Path(folder, "dataset"), case, steps)
        for _ in range(rounds):
            for name in seconds:
                clock = Clock(lambda step: step in (0, 1, WARM_STEPS, steps))
                if name == "limit":
                    run_torch(case, gather_on_device(in_memory, batch), steps, clock)
                elif name == "DataLoader":
                    run_torch(case, load_by_torch(in_memory, batch), steps, clock)
                else:
                    run_ours(data, case, steps, clock, resident=name == "gpu_cache_gb")
                begin, first, warm, end = clock.times
                seconds[name].append((end - warm) / (steps - WARM_STEPS))
                if name == "gpu_cache_gb":
                    first_steps.append(first - begin)
    print(f"\n{rows * repeats:,} rows of 100 values, batches of {batch}, a network of {width} units")
    for name, each in seconds.items():
        value = statistics.median(each)
        print(f"  {name:12} {value * 1e3:6.2f} ms a step, {batch / value:12,.0f} rows/s")
    print(f"  the first step, with the copy of the split to the device, takes {statistics.median(first_steps):.2f} s")
    print_ratio("from the memory of the device / limit", seconds, "limit", "gpu_cache_gb", RESIDENT_GOAL)
    print_ratio("stored / DataLoader", seconds, "DataLoader", "stored", READER_GOAL)


def build_network(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(100, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )  # fmt: skip


def gather_on_device(columns: Batch, batch: int) -> Iterator[Batch]:
    device = World().device
    columns = {name: values.to(device) for name, values in columns.items()}
    for rows in torch.randperm(len(columns["label"]), device=device).split(batch):
        yield {name: values.index_select(0, rows) for name, values in columns.items()}


def load_by_torch(columns: Batch, batch: int) -> Iterator[Batch]:
    dataset = TensorDataset(*columns.values())
    sampler = BatchSampler(RandomSampler(dataset), batch, drop_last=False)
    loader = DataLoader(dataset, None, sampler=sampler, num_workers=WORKERS, pin_memory=torch.cuda.is_available())
    device = World().device
    for values in loader:
        yield {name: value.to(device, non_blocking=True) for name, value in zip(columns, values, strict=True)}


def run_torch(case: Case, batches: Iterator[Batch], steps: int, clock: Clock) -> None:
    """Run a loop of torch calls on batches."""
    loop = BareLoop(case, {})
    for number in range(steps):
        clock.visit(number)
        loop.step(next(batches))
    clock.visit(steps)
