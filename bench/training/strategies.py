"""Measure the synchronization overhead of every strategy with two workers of one thread each.

    PYTHONPATH=plugins:. python bench/training/strategies.py [--rounds 5] [--only PART]

Speed: rows/s of an epoch, with variants alternating in the same two processes; ratios are medians over rounds. "Side
by side" are the two workers at the same time with half the batch each and without communication: the upper bound on
this machine. "Bare DDP" is a loop of torch calls on tensors in memory.

Checkpoints: within a run that saves its state every 100 steps, the 50 steps after the start of a checkpoint are
compared with the next 50. A round has 4 such pairs of the MLP, 1 of the CNN.

Events: rows/s with and without the events of a run, alternating. `accuracy.py` measures bytes and accuracy.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.trainer import datasets
from tests.trainer.workers import Workers
from trainyard.schemas.runs.events import EventLog
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.world import World

SHAPES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "MLP": (100_000, 1024, (32,)),
    "CNN": (6_000, 256, (1, 16, 16)),
}
STEPS = 50
"""The steps between checkpoints for which the goal is set."""
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


def build_model(name: str) -> nn.Module:
    if name == "MLP":
        return nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(4), nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def recipe(name: str) -> Recipe:
    torch.manual_seed(0)
    return Recipe(
        model=build_model(name), features="x", label="label", loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9),
    )  # fmt: skip


def measure_speed(world: World, data: str, name: str, variant: Variant, folder: str) -> float:
    """Return the rows/s of both workers in the faster of two epochs."""
    rows, batch, shape = SHAPES[name]
    if variant.get("bare"):
        return measure_bare_ddp(world, name, rows, batch, shape)
    alone = variant.get("alone")
    log = EventLog(folder, "train", f"worker {world.rank}", world.rank) if variant.get("events") else None
    with log or nullcontext():
        fitted = fit(
            "bench.training.strategies:recipe", recipe_params={"name": name},
            dataset=f"{data}/{'half' if alone else 'all'}", model=f"{folder}/{world.rank}",
            world=World() if alone else world, epochs=2, strategy=variant.get("strategy", "allreduce"),
            batch_size=batch // 2 if alone else batch, phases=Phases(log),
        )  # fmt: skip
    return max(epoch["rows_per_second"] for epoch in fitted.history.epochs) * (2 if alone else 1)


class TimedSGD(torch.optim.SGD):
    """An optimizer that records when each step ends."""

    ends: list[float] = []

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        self.ends.append(time.perf_counter())


def timed_recipe(name: str) -> Recipe:
    return replace(recipe(name), optimizer=lambda parameters: TimedSGD(parameters, 0.01, momentum=0.9))


def compare_checkpoints(world: World, data: str, name: str, folder: str) -> list[float]:
    """Return the speed of 50 steps during a checkpoint, as fractions of that of the next 50."""
    TimedSGD.ends.clear()
    fit(
        f"{__name__}:timed_recipe", recipe_params={"name": name}, dataset=f"{data}/all", model=f"{folder}/m",
        world=world, epochs=1, batch_size=SHAPES[name][1], checkpoint_steps=2 * STEPS, checkpoints=f"{folder}/c",
    )  # fmt: skip
    halves = np.diff(TimedSGD.ends[2 * STEPS - 1 :: STEPS])
    return [after / during for during, after in zip(halves[::2], halves[1::2], strict=False)]


def measure_checkpoints(name: str, pairs: int) -> list[float]:
    _, batch, shape = SHAPES[name]
    with tempfile.TemporaryDirectory() as folder, Workers(2) as workers:
        data = write_data(Path(folder), batch * 2 * STEPS * (pairs + 1), shape)
        return workers(compare_checkpoints, data, name, folder)[0]


def measure_bare_ddp(world: World, name: str, rows: int, batch: int, shape: tuple[int, ...]) -> float:
    local_batch, steps = batch // 2, rows // batch
    x, y = torch.rand(rows // 2, *shape), torch.randint(0, 10, (rows // 2,))
    network = DistributedDataParallel(recipe(name).model)
    optimizer, loss = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9), nn.CrossEntropyLoss()
    best = 0.0
    for _ in range(2):
        started = time.perf_counter()
        for step in range(steps):
            part = slice(step * local_batch, (step + 1) * local_batch)
            loss(network(x[part]), y[part]).backward()
            optimizer.step()
            optimizer.zero_grad()
        best = max(best, steps * batch / (time.perf_counter() - started))
    dist.barrier()
    return best


def write_data(folder: Path, rows: int, shape: tuple[int, ...]) -> str:
    rng = np.random.default_rng(0)
    columns = {"x": rng.random((rows, *shape), dtype=np.float32), "label": rng.integers(0, 10, rows)}
    datasets.write(folder / "all", {"train": columns}, 4096)
    datasets.write(folder / "half", {"train": {key: value[: rows // 2] for key, value in columns.items()}}, 4096)
    return str(folder)


def measure_variants(variants: dict[str, Variant], name: str, rounds: int) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {variant: [] for variant in variants}
    with tempfile.TemporaryDirectory() as folder, Workers(2) as workers:
        data = write_data(Path(folder), SHAPES[name][0], SHAPES[name][2])
        for number in range(rounds):
            for variant, options in variants.items():
                run = f"{folder}/{variant}-{number}"
                rates[variant].append(min(workers(measure_speed, data, name, options, run)))
    return rates


def compute_ratio(rates: dict[str, list[float]], variant: str, reference: str) -> float:
    return statistics.median(a / b for a, b in zip(rates[variant], rates[reference], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["speed", "checkpoints", "events"])
    args = parser.parse_args()
    if args.only in (None, "speed"):
        for name in SHAPES:
            rates = measure_variants(SPEED, name, args.rounds)
            for variant in SPEED:
                ratios = ", ".join(
                    f"{compute_ratio(rates, variant, o):.2f} of {o}" for o in list(SPEED)[:3] if o != variant
                )
                print(f"{name} {variant}: {statistics.median(rates[variant]):,.0f} rows/s; {ratios}", flush=True)
            print(f"{name} allreduce / horovod: {compute_ratio(rates, 'allreduce', 'horovod'):.2f}", flush=True)
    if args.only in (None, "checkpoints"):
        for name in SHAPES:
            speeds = measure_checkpoints(name, PAIRS[name] * args.rounds)
            summary = f"{statistics.median(speeds):.3f} of the speed, {min(speeds):.2f} to {max(speeds):.2f}"
            print(f"{name}, a checkpoint every {STEPS} steps: {summary} in {len(speeds)} pairs", flush=True)
    if args.only in (None, "events"):
        variants: dict[str, Variant] = {"on": {"events": True}, "off": {}}
        for name in SHAPES:
            rates = measure_variants(variants, name, 2 * args.rounds)
            print(f"{name}, with events: {compute_ratio(rates, 'on', 'off'):.3f} of the speed without", flush=True)


if __name__ == "__main__":
    main()
