"""What agreeing costs: two ranks of one thread each, by every strategy, against what the machine can do.

    PYTHONPATH=plugins:. python bench/strategies.py [--rounds 5] [--epochs 40] [--only PART]

Speed: rows/s of an epoch, the variants taking turns in the same two processes; ratios are medians over rounds.
"Side by side" are the two ranks at half the batch each, at once, without a word to each other: the machine's own
limit. "Bare DDP" is a loop of torch's calls on tensors in memory.

Checkpoints: within one run that saves its state after every 100 steps, the 50 steps after a checkpoint was begun
against the 50 that follow; a round is 4 such pairs of the MLP, 1 of the CNN.

Events: rows/s with the events of a run and without, taking turns.

Bytes: scikit-learn's digits (1797 images); what each rank sends, and the accuracy on rows kept apart,
means over three seeds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchmetrics.classification import MulticlassAccuracy

from tests.trainer import datasets
from tests.trainer.workers import Workers
from trainyard.schemas.events import EventLog
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.loop.phases import Phases
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.world import World

SHAPES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "MLP": (100_000, 1024, (32,)),
    "CNN": (6_000, 256, (1, 16, 16)),
}
BETWEEN = 50
"""Steps between checkpoints that the goal speaks of."""
PAIRS = {"MLP": 4, "CNN": 1}
Variant = dict[str, Any]
SPEED: dict[str, Variant] = {
    "side by side": {"alone": True},
    "bare DDP": {"bare": True},
    "allreduce": {"strategy": "allreduce"},
    "allreduce fp16": {"strategy": {"name": "allreduce", "compression": "fp16"}},
    "horovod": {"strategy": "horovod"},
    "averaging": {"strategy": "averaging"},
    "threshold": {"strategy": "threshold"},
    "diloco": {"strategy": "diloco"},
    "fsdp": {"strategy": "fsdp"},
}


def model(name: str) -> nn.Module:
    if name == "MLP":
        return nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    size = 16 if name == "CNN" else 8
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(size // 4), nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def recipe(name: str, learning_rate: float = 0.01) -> Recipe:
    torch.manual_seed(0)
    return Recipe(
        model=model(name), features="x", label="label", loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, learning_rate, momentum=0.9),
        metrics={"accuracy": MulticlassAccuracy(10, average="micro")} if name == "digits" else {},
    )  # fmt: skip


def speed(world: World, data: str, name: str, variant: Variant, folder: str) -> float:
    """Rows/s over both ranks, of the faster of two epochs."""
    rows, batch, shape = SHAPES[name]
    if variant.get("bare"):
        return bare(world, name, rows, batch, shape)
    alone = variant.get("alone")
    log = EventLog(folder, "train", f"worker {world.rank}", world.rank) if variant.get("events") else None
    fitted = fit(
        "bench.strategies:recipe", recipe_params={"name": name}, dataset=f"{data}/{'half' if alone else 'whole'}",
        model=f"{folder}/{world.rank}", world=World() if alone else world, epochs=2,
        strategy=variant.get("strategy", "allreduce"), batch_size=batch // 2 if alone else batch,
        phases=Phases(log),
    )  # fmt: skip
    return max(epoch["rows_per_second"] for epoch in fitted.history.epochs) * (2 if alone else 1)


class Stamped(torch.optim.SGD):
    """Notes when each step has ended."""

    ends: list[float] = []

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        self.ends.append(time.perf_counter())


def stamped(name: str) -> Recipe:
    return replace(recipe(name), optimizer=lambda parameters: Stamped(parameters, 0.01, momentum=0.9))


def saving(world: World, data: str, name: str, folder: str) -> list[float]:
    """The speed of 50 steps while a checkpoint is taken and written, as a fraction of that of the next 50."""
    Stamped.ends.clear()
    fit(
        f"{__name__}:stamped", recipe_params={"name": name}, dataset=f"{data}/whole", model=f"{folder}/m",
        world=world, epochs=1, batch_size=SHAPES[name][1], checkpoint_steps=2 * BETWEEN, checkpoints=f"{folder}/c",
    )  # fmt: skip
    halves = np.diff(Stamped.ends[2 * BETWEEN - 1 :: BETWEEN])
    return [after / during for during, after in zip(halves[::2], halves[1::2], strict=False)]


def checkpoints(name: str, pairs: int) -> list[float]:
    _, batch, shape = SHAPES[name]
    with tempfile.TemporaryDirectory() as folder, Workers(2) as workers:
        data = written(Path(folder), batch * 2 * BETWEEN * (pairs + 1), shape)
        return workers(saving, data, name, folder)[0]


def bare(world: World, name: str, rows: int, batch: int, shape: tuple[int, ...]) -> float:
    mine, steps = batch // 2, rows // batch
    x, y = torch.rand(rows // 2, *shape), torch.randint(0, 10, (rows // 2,))
    network = DistributedDataParallel(recipe(name).model)
    optimizer, loss = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9), nn.CrossEntropyLoss()
    best = 0.0
    for _ in range(2):
        started = time.perf_counter()
        for step in range(steps):
            part = slice(step * mine, (step + 1) * mine)
            loss(network(x[part]), y[part]).backward()
            optimizer.step()
            optimizer.zero_grad()
        best = max(best, steps * batch / (time.perf_counter() - started))
    dist.barrier()
    return best


def written(folder: Path, rows: int, shape: tuple[int, ...]) -> str:
    rng = np.random.default_rng(0)
    columns = {"x": rng.random((rows, *shape), dtype=np.float32), "label": rng.integers(0, 10, rows)}
    datasets.write(folder / "whole", {"train": columns}, 4096)
    datasets.write(folder / "half", {"train": {key: value[: rows // 2] for key, value in columns.items()}}, 4096)
    return str(folder)


def measured(variants: dict[str, Variant], name: str, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {variant: [] for variant in variants}
    with tempfile.TemporaryDirectory() as folder, Workers(2) as workers:
        data = written(Path(folder), SHAPES[name][0], SHAPES[name][2])
        for number in range(rounds):
            for variant, options in variants.items():
                run = f"{folder}/{variant}-{number}"
                found[variant].append(min(workers(speed, data, name, options, run)))
    return found


def ratio(found: dict[str, list[float]], ours: str, theirs: str) -> float:
    return statistics.median(a / b for a, b in zip(found[ours], found[theirs], strict=True))


def accuracy(world: World, data: str, strategy: Any, seed: int, epochs: int, folder: str) -> tuple[float, float, int]:
    fitted = fit(
        "bench.strategies:recipe", recipe_params={"name": "digits", "learning_rate": 0.05}, dataset=data,
        model=folder, world=world, epochs=epochs, batch_size=32, strategy=strategy, seed=seed,
    )  # fmt: skip
    return fitted.history.epochs[-1]["accuracy"], fitted.history.epochs[-1]["bytes_per_step"], fitted.bytes_sent


def bytes_and_accuracy(epochs: int) -> list[str]:
    images, labels = load_digits(return_X_y=True)
    x = (images / 16 - 0.5).astype(np.float32).reshape(-1, 1, 8, 8)
    kept = np.arange(len(x)) % 5 == 0
    splits = {"train": {"x": x[~kept], "label": labels[~kept]}, "validation": {"x": x[kept], "label": labels[kept]}}
    strategies: list[Any] = [
        "allreduce", {"name": "allreduce", "compression": "fp16"},
        {"name": "allreduce", "compression": "powersgd", "powersgd_rank": 2, "powersgd_start": 20},
        "averaging", "threshold", {"name": "diloco", "inner_steps": 20, "outer_momentum": 0.5},
    ]  # fmt: skip
    lines, dense = [], 0.0
    with tempfile.TemporaryDirectory() as folder, Workers(2) as workers:
        data = datasets.write(Path(folder, "data"), splits, 128)
        for strategy in strategies:
            runs = [workers(accuracy, data, strategy, seed, epochs, f"{folder}/m")[0] for seed in range(3)]
            right, last, sent = (statistics.mean(values) for values in zip(*runs, strict=True))
            dense = dense or sent
            lines.append(
                f"| {strategy} | {right:.4f} | {sent / 1e6:.2f} MB | {dense / sent:.0f} x fewer | {last:,.0f} B/step |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--only", choices=["speed", "checkpoints", "events", "bytes"])
    asked = parser.parse_args()
    if asked.only in (None, "speed"):
        for name in SHAPES:
            found = measured(SPEED, name, asked.rounds)
            for variant in SPEED:
                beside = ", ".join(f"{ratio(found, variant, o):.2f} of {o}" for o in list(SPEED)[:3] if o != variant)
                print(f"{name} {variant}: {statistics.median(found[variant]):,.0f} rows/s; {beside}", flush=True)
            print(f"{name} allreduce / horovod: {ratio(found, 'allreduce', 'horovod'):.2f}", flush=True)
    if asked.only in (None, "checkpoints"):
        for name in SHAPES:
            speeds = checkpoints(name, PAIRS[name] * asked.rounds)
            shown = f"{statistics.median(speeds):.3f} of the speed, {min(speeds):.2f} to {max(speeds):.2f}"
            print(f"{name}, a checkpoint every {BETWEEN} steps: {shown} in {len(speeds)} pairs", flush=True)
    if asked.only in (None, "events"):
        variants: dict[str, Variant] = {"on": {"events": True}, "off": {}}
        for name in SHAPES:
            found = measured(variants, name, 2 * asked.rounds)
            print(f"{name}, with events: {ratio(found, 'on', 'off'):.3f} of the speed without", flush=True)
    if asked.only in (None, "bytes"):
        print("\n".join(bytes_and_accuracy(asked.epochs)))


if __name__ == "__main__":
    main()
