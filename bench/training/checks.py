"""Measure what the comparison of replicas and the test of a model cost, beside the training that they belong to.

    PYTHONPATH=plugins:. python -m bench.training.checks [--rows 20000]

Two workers on this machine train a network of 5.3 million parameters with Adam, whose state is compared too.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from trainyard.trainer import Recipe

WIDTH, HIDDEN, EPOCHS = 512, 2048, 3


def network() -> Recipe:
    """Return a recipe of 5.3 million parameters."""
    layers = [nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10)]
    return Recipe(model=nn.Sequential(*layers), features="x", label="label", classes=10, loss=nn.CrossEntropyLoss())


def train(world: Any, dataset: str, model: str) -> dict[str, float]:
    """Train on one worker of a group, and return the seconds of each kind of check, and of all."""
    from trainyard.trainer.loop.fit import fit
    from trainyard.trainer.run import replicas
    from trainyard.trainer.verification.check import ModelCheck

    torch.set_num_threads(1)
    seconds: dict[str, float] = defaultdict(float)

    def measure(kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                seconds[kind] += time.perf_counter() - start

        return run

    for owner, names, kind in (
        (replicas.Replicas, ("check",), "replicas"),
        (replicas, ("compute_digests",), "digests"),
        (ModelCheck, ("check_untrained", "apply", "check"), "model"),
    ):
        for name in names:
            setattr(owner, name, measure(kind, getattr(owner, name)))
    start = time.perf_counter()
    fit("bench.training.checks:network", dataset=dataset, model=model, world=world, epochs=EPOCHS, batch_size=256)
    return seconds | {"all": time.perf_counter() - start}


def main() -> None:
    from tests.trainer import datasets
    from tests.trainer.workers import Workers

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    rows = parser.parse_args().rows
    random = np.random.default_rng(0)
    columns = {"x": random.random((rows, WIDTH), np.float32), "label": random.integers(0, 10, rows)}
    some = {name: values[:500] for name, values in columns.items()}
    with tempfile.TemporaryDirectory() as folder, Workers(2) as workers:
        dataset = datasets.write(Path(folder, "dataset"), {"train": columns, "validation": some})
        seconds, _ = workers(train, dataset, str(Path(folder, "model")))
    epoch = (seconds["all"] - seconds["model"]) / EPOCHS
    print(f"{EPOCHS} epochs of {epoch:.1f} s")
    for name, kind in (("digests", "digests"), ("replicas, with the wait for the other worker", "replicas")):
        print(f"{name}: {seconds[kind] / EPOCHS:.3f} s an epoch, {seconds[kind] / EPOCHS / epoch:.2%} of it")
    print(f"model, twice: {seconds['model']:.2f} s, {seconds['model'] / epoch:.1%} of an epoch")


if __name__ == "__main__":
    main()
