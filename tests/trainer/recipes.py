"""Recipes for the trainer's tests."""

from __future__ import annotations

import os
import signal

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
