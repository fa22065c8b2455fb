"""Compare the training loop with a bare torch loop on the same tensors in memory.

    PYTHONPATH=plugins:. python bench/training/loop.py [--epochs 5]

One worker of one thread (as each of two workers has on two cores) trains with batches of 1024 rows (MLP) and 256
(CNN). The bare loop slices tensors and does forward, backward and the optimizer's step, and nothing else: no loader,
no clock, no check of the loss. The two alternate every 10 steps within one process, which is least sensitive to
noise; the ratio is the median over neighboring turns. Events are written as in a worker group.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tests.trainer import datasets
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.specs.strategies import Allreduce
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.data.loader import Loader, LocalBatch
from trainyard.trainer.data.order import Order, window_steps
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.loop.engine import train
from trainyard.trainer.loop.training import Training
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.measuring.progress import Progress
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.strategies import build_strategy
from trainyard.trainer.world import World

CLASSES, TURN = 10, 10
SHAPES = {"MLP": (200_000, 1024, (32,)), "CNN": (20_000, 256, (1, 16, 16))}


def build_network(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "MLP":
        return nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES))
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(4), nn.Flatten(), nn.Linear(64 * 16, CLASSES),
    )  # fmt: skip


class BareLoop:
    """A loop of torch calls, which runs some steps on request."""

    def __init__(self, name: str, batch: int, x: Tensor, y: Tensor) -> None:
        self._model, self._loss = build_network(name), nn.CrossEntropyLoss()
        self._optimizer = torch.optim.SGD(self._model.parameters(), 0.01)
        self._x, self._y, self._batch, self._start = x, y, batch, 0

    def measure(self, steps: int) -> float:
        started = time.perf_counter()
        for _ in range(steps):
            rows = slice(self._start, self._start + self._batch)
            self._loss(self._model(self._x[rows]), self._y[rows]).backward()
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=True)
            self._start = (self._start + self._batch) % (len(self._y) - self._batch)
        return time.perf_counter() - started


class AlternatingLoader(Loader):
    """A loader that runs the bare loop between steps, and measures both."""

    def __init__(self, dataset: SplitReader, order: Order, bare: BareLoop) -> None:
        super().__init__(dataset, order)
        self._bare = bare
        self.turns: list[tuple[float, float]] = []

    def epoch(self, epoch: int, step: int = 0) -> Iterator[LocalBatch]:
        started = time.perf_counter()
        for batch in super().epoch(epoch, step):
            if batch.step % TURN == 0 and batch.step:
                ours = time.perf_counter() - started
                self.turns.append((ours, self._bare.measure(TURN)))
                started = time.perf_counter()
            yield batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)
    lines = []
    for name, (rows, batch, shape) in SHAPES.items():
        rng = np.random.default_rng(0)
        columns = {"x": rng.random((rows, *shape), dtype=np.float32), "label": rng.integers(0, CLASSES, rows)}
        x, y = (torch.from_numpy(columns[key]) for key in ("x", "label"))
        with tempfile.TemporaryDirectory() as folder:
            uri = datasets.write(Path(folder, "dataset"), {"train": columns}, 16384)
            dataset = SplitReader(uri, manifests.read_current(uri), "train", ("x", "label"))
            order = Order(dataset.blocks, batch, 0, window_steps(batch, dataset.row_bytes))
            loader = AlternatingLoader(dataset, order, BareLoop(name, batch, x, y))
            recipe = Recipe(
                model=build_network(name), features="x", label="label", loss=nn.CrossEntropyLoss(),
                optimizer=lambda parameters: torch.optim.SGD(parameters, 0.01),
            )  # fmt: skip
            with EventLog(f"file://{folder}/events", "train", "worker 0") as log:
                phases = Phases(log)
                train(
                    Training(
                        recipe=recipe, network=Network(recipe.model, dataset.columns[:1], {}),
                        options=TrainOptions(epochs=epochs, batch_size=batch), world=World(),
                        strategy=build_strategy(Allreduce(), World()), train=loader, validation=None,
                        phases=phases, progress=Progress(epochs, order, True, phases, ()),
                    )
                )  # fmt: skip
            turns = loader.turns[1:]
        bare = statistics.median(bare for _, bare in turns) / TURN
        more = statistics.median(ours - bare for ours, bare in turns) / TURN
        ratio = statistics.median(bare / ours for ours, bare in turns)
        lines.append(
            f"{name}: a bare step {bare * 1e3:.2f} ms, ours {more * 1e3:.2f} ms more; "
            f"ours / bare {ratio:.3f} over {len(turns)} turns  (goal 0.97)"
        )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
