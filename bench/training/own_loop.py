"""Compare a loop of the user's own with that of a recipe, with the same network, optimizer and batches.

    PYTHONPATH=plugins:. python bench/training/own_loop.py [--rounds 5] [--workers 2]

The two alternate. Of each round the best epoch of three gives rows a second, and all of it the processor time of rank
0, which other work on the machine disturbs less; the ratios are medians over rounds. With several workers (processes of
this machine, gloo), both average gradients while the backward pass runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.trainer import datasets
from tests.trainer.workers import Workers
from trainyard.trainer import Recipe, Run, fit
from trainyard.trainer.world import World

SHAPES = {"MLP": (100_000, 1024, (32,)), "CNN": (5_000, 256, (1, 16, 16))}


def network(name: str) -> Recipe:
    """Return the recipe of a network."""
    if name == "MLP":
        model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    else:
        model = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(4), nn.Flatten(), nn.Linear(64 * 16, 10),
        )  # fmt: skip
    return Recipe(
        model=model, features="x", label="label", loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.01),
    )  # fmt: skip


def train(run: Run, name: str) -> None:
    """Train a network as its recipe would."""
    net = run.model(f"{__name__}:network" if __name__ != "__main__" else "bench.training.own_loop:network", name=name)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    run.track(net=net, optimizer=optimizer)
    for batch in run.steps():
        loss = functional.cross_entropy(net(batch), batch["label"])
        batch.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        batch.report(loss=loss)
    run.publish(net)


def measure(world: World, kind: str, name: str, dataset: str, model: str) -> tuple[float, float]:
    """Return the rows a second of the best epoch, and the rows for a second of a core in all of them."""
    torch.set_num_threads(1)
    path = f"bench.training.own_loop:{'network' if kind == 'recipe' else 'train'}"
    options = {"epochs": 3, "batch_size": SHAPES[name][1], kind: path, f"{kind}_params": {"name": name}}
    started = time.process_time()
    epochs = fit(dataset=dataset, model=model, world=world, **options).history.epochs  # type: ignore[arg-type]
    rows = len(epochs) * SHAPES[name][0] / world.size
    return max(epoch["rows_per_second"] for epoch in epochs), rows / (time.process_time() - started)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder, Workers(args.workers) as workers:
        for name, (rows, _, shape) in SHAPES.items():
            columns = {"x": rng.normal(size=(rows, *shape)).astype(np.float32), "label": rng.integers(0, 10, rows)}
            dataset = datasets.write(Path(folder) / name, {"train": columns}, rows_per_batch=4096)
            rounds = []
            for _ in range(args.rounds):
                speeds = [
                    workers(measure, kind, name, dataset, f"{folder}/{name}-{kind}")[0] for kind in ("recipe", "loop")
                ]
                rounds.append([of_loop / of_recipe for of_recipe, of_loop in zip(*speeds, strict=True)])
            wall, processor = (statistics.median(ratios) for ratios in zip(*rounds, strict=True))
            print(
                f"{name}, {args.workers} workers: a loop has {wall:.3f} of the recipe's rows a second, and "
                f"{processor:.3f} of its rows for a second of a core",
                flush=True,
            )


if __name__ == "__main__":
    main()
