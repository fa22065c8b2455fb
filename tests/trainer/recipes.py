"""Recipes for the trainer's tests."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics.classification import MulticlassAccuracy

from trainer.recipe import Recipe


def linear(classes: int = 3, learning_rate: float = 0.1, limit: int | None = None, size: int = 8) -> Recipe:
    return Recipe(
        model=nn.Linear(size, classes),
        features="x",
        label="label",
        classes=limit,
        normalise="element",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, learning_rate, momentum=0.9),
        metrics={"accuracy": MulticlassAccuracy(classes, average="micro")},
        predict=lambda output: {"class_": output.argmax(1)},
    )


def diverging() -> Recipe:
    return Recipe(
        model=nn.Linear(8, 1),
        features="x",
        label="label",
        loss=lambda output, label: ((output.squeeze(1) - label) ** 2).mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, 1e6),
    )


class Crashing(nn.Linear):
    """Fails, or dies, on one rank alone."""

    def __init__(self, rank: int, how: str) -> None:
        super().__init__(8, 3)
        self._rank, self._how = rank, how

    def forward(self, x: Tensor) -> Tensor:
        if torch.distributed.get_rank() == self._rank:
            if self._how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the model had enough")
        return super().forward(x)


def crashing(rank: int, how: str) -> Recipe:
    return Recipe(model=Crashing(rank, how), features="x", label="label", loss=nn.CrossEntropyLoss())


def weighted_step() -> Recipe:
    def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch), batch["label"], label_smoothing=0.1)

    return Recipe(model=nn.Linear(8, 3), features="x", label="label", step=step)


def noting(file: str, dataset: str) -> Recipe:
    """Notes how many rows each step has, and which versions of the dataset are pinned meanwhile."""

    def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        pins = [pin.name.split("-")[0] for pin in Path(dataset, "pins").iterdir()]
        with Path(file).open("a") as notes:
            notes.write(f"{len(batch['label'])} {pins}\n")
        return nn.functional.cross_entropy(model(batch), batch["label"])

    return Recipe(model=nn.Linear(2, 3), features="x", label="label", step=step)


def no_recipe() -> int:
    return 1


class Number(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).squeeze(1)


def regression() -> Recipe:
    return Recipe(
        model=Number(8, 1),
        features="x",
        label="label",
        normalise="element",
        loss=lambda output, label: ((output - label) ** 2).mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.02),
    )


def plain() -> Recipe:
    """Without momentum: nothing but gradients and weights."""
    return Recipe(
        model=nn.Linear(8, 3),
        features="x",
        label="label",
        normalise="element",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1),
    )


def wide(learning_rate: float = 0.05) -> Recipe:
    return Recipe(
        model=nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3)),
        features="x",
        label="label",
        normalise="element",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, learning_rate, momentum=0.9),
        metrics={"accuracy": MulticlassAccuracy(3, average="micro")},
    )


class Ordered(nn.Linear):
    """Ends its rank's process, fails or hangs at the forward pass that the file `orders` names ("rank pass how").

    Kills or hangs once, or in each start ("kill always"). The file beside it, `pids`, gets a line from each process.
    """

    def __init__(self, orders: str) -> None:
        super().__init__(8, 3)
        file = Path(orders)
        self._orders = file.read_text().split() if file.exists() else None
        self._file, self._passes = file, 0
        with file.with_name("pids").open("a") as pids:
            pids.write(f"{os.getpid()}\n")
        self._dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        self._passes += self.training
        if self._orders:
            rank, last, how = int(self._orders[0]), int(self._orders[1]), self._orders[2]
            mine = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
            if self._passes == last and mine == rank:
                if how != "raise" and "always" not in self._orders:
                    self._file.unlink()
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if how == "hang":
                    threading.Event().wait()
                raise RuntimeError("the model had enough")
        return super().forward(self._dropout(x))


def ordered(orders: str, dropout: float = 0.0) -> Recipe:
    model = Ordered(orders)
    model._dropout.p = dropout
    return Recipe(
        model=model,
        features="x",
        label="label",
        normalise="element",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, 0.05),
        schedule=lambda optimizer, updates: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, updates),
        metrics={"accuracy": MulticlassAccuracy(3, average="micro")},
    )


class Stateful(torch.optim.lr_scheduler.ConstantLR):
    """Its state holds code, which a pickle would run."""

    def state_dict(self) -> dict[str, Any]:
        return {"hook": os.getcwd}


def unsafe_schedule() -> Recipe:
    return Recipe(
        model=nn.Linear(8, 3),
        features="x",
        label="label",
        loss=nn.CrossEntropyLoss(),
        schedule=lambda optimizer, updates: Stateful(optimizer),
    )
