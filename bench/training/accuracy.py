"""Compare what each strategy sends, and the accuracy it reaches, on three data sets of different kinds.

    PYTHONPATH=plugins:. python -m bench.training.accuracy [--seeds 2] [--only digits]

Two workers, equal epochs. Digits: scikit-learn's 1,797 images of 8 x 8, a CNN, SGD with momentum. Table: 24,000 rows of
64 numbers in 8 classes of three clusters each (scikit-learn's make_classification), an MLP, SGD with momentum. Text:
the next byte after 16, in the text of Python's own help, an embedding and an MLP, Adam. Each is trained once for as
many steps as are short for it, and once for long. Accuracy is that of the last epoch on held-out rows; figures are
means over the seeds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pydoc_data import topics
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits, make_classification
from torch import nn
from torchmetrics.classification import MulticlassAccuracy

from tests.trainer import datasets
from tests.trainer.workers import Workers
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.world import World

Arrays = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
CONTEXT = 16
STRATEGIES: list[Any] = [
    "allreduce", {"name": "allreduce", "compression": "fp16"},
    {"name": "allreduce", "compression": "powersgd", "powersgd_rank": 2, "powersgd_start": 20},
    "averaging", "threshold", {"name": "diloco", "inner_steps": 20, "outer_momentum": 0.5},
]  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A data set and how it is learned.

    Attributes:
        read: Returns features and labels.
        batch: The rows of a global batch.
        epochs: The epochs of a short training, and of a long one.
        classes: The number of classes.
    """

    read: Callable[[], Arrays]
    batch: int
    epochs: tuple[int, int]
    classes: int = 10


def read_digits() -> Arrays:
    images, labels = load_digits(return_X_y=True)
    return (images / 16 - 0.5).astype(np.float32).reshape(-1, 1, 8, 8), labels


def read_table() -> Arrays:
    rows, labels = make_classification(
        24_000, 64, n_informative=24, n_redundant=16, n_classes=8, n_clusters_per_class=3, class_sep=1.5, random_state=0
    )
    return (rows / rows.std(0)).astype(np.float32), labels


def read_text() -> Arrays:
    text = "".join(topics.topics[name] for name in sorted(topics.topics)).encode("ascii", "replace")[:200_000]
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(text, np.uint8), CONTEXT + 1)
    chosen = windows[np.random.default_rng(0).permutation(len(windows))[:50_000]].astype(np.int64)
    return chosen[:, :CONTEXT].copy(), chosen[:, CONTEXT].copy()


TASKS = {
    "digits": Task(read_digits, 32, (3, 12)),
    "table": Task(read_table, 128, (1, 4), classes=8),
    "text": Task(read_text, 128, (1, 3), classes=128),
}


class Flatten(nn.Module):
    """An embedding of the bytes before, end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, 32)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.embedding(text).flatten(1)


def build_model(name: str) -> nn.Module:
    if name == "digits":
        return nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 10),
        )  # fmt: skip
    if name == "table":
        return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))
    return nn.Sequential(Flatten(), nn.Linear(32 * CONTEXT, 256), nn.ReLU(), nn.Linear(256, 128))


def recipe(name: str) -> Recipe:
    adam, sgd = torch.optim.Adam, torch.optim.SGD
    return Recipe(
        model=build_model(name), features="x", label="label", loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: (
            adam(parameters, 1e-3) if name == "text" else sgd(parameters, 0.05, momentum=0.9)
        ),
        metrics={"accuracy": MulticlassAccuracy(TASKS[name].classes, average="micro")},
    )  # fmt: skip


def train(
    world: World, name: str, data: str, strategy: Any, seed: int, epochs: int, folder: str
) -> tuple[float, float]:
    """Return the accuracy, and the bytes that this worker has sent."""
    fitted = fit(
        f"{__name__}:recipe", recipe_params={"name": name}, dataset=data, model=folder, world=world, epochs=epochs,
        batch_size=TASKS[name].batch, strategy=strategy, seed=seed,
    )  # fmt: skip
    return fitted.history.epochs[-1]["accuracy"], float(fitted.bytes_sent)


def write_dataset(name: str, folder: Path) -> tuple[str, int]:
    """Write the rows, a fifth of them for validation, and return the dataset and the number of the other rows."""
    x, labels = TASKS[name].read()
    held_out = np.arange(len(x)) % 5 == 0
    splits = {
        "train": {"x": x[~held_out], "label": labels[~held_out]},
        "validation": {"x": x[held_out], "label": labels[held_out]},
    }
    return datasets.write(folder / name, splits, 128), int((~held_out).sum())


def measure(workers: Workers, name: str, folder: Path, seeds: int) -> list[str]:
    """Return a row of the table for each strategy and length of training."""
    data, rows = write_dataset(name, folder)
    lines = []
    for epochs in TASKS[name].epochs:
        best = dense = 0.0
        for strategy in STRATEGIES:
            model = str(folder / "model")
            runs = [workers(train, name, data, strategy, seed, epochs, model)[0] for seed in range(seeds)]
            accuracy, sent = (statistics.mean(values) for values in zip(*runs, strict=True))
            best, dense = best or accuracy, dense or sent
            steps = epochs * -(-rows // TASKS[name].batch)
            lines.append(
                f"| {name}, {steps} steps | {strategy} | {accuracy:.4f} | {100 * (accuracy - best):+.1f} | "
                f"{sent / 1e6:.2f} MB | {dense / sent:.0f} x fewer |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", choices=TASKS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Workers(2) as workers:
        for name in [args.only] if args.only else TASKS:
            print("\n".join(measure(workers, name, Path(folder), args.seeds)), flush=True)


if __name__ == "__main__":
    main()
