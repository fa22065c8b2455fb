"""A network of many layers for the digits, whose checkpoints have 20 files for each of two workers."""

from __future__ import annotations

from torch import nn, optim

from trainyard.trainer import Recipe
from trainyard.trainer.checkpointing import dcp

LAYERS = 20

dcp.FILE_BYTES = 1  # each tensor is a file


def network() -> Recipe:
    layers = [nn.Linear(64, 64, bias=False) for _ in range(LAYERS - 1)]
    return Recipe(
        model=nn.Sequential(nn.Flatten(), *layers, nn.Linear(64, 10, bias=False)),
        features="image",
        label="label",
        classes=10,
        normalize="all",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: optim.SGD(parameters, 0.01, momentum=0.9),
    )
