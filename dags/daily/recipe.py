"""A small network for 8 x 8 digits."""

from __future__ import annotations

from torch import nn

from trainyard.trainer import Recipe


def network(width: int = 64) -> Recipe:
    return Recipe(
        model=nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10)),
        features="image",
        label="label",
        classes=10,
        normalize="all",
        learning_rate=3e-3,
        metrics=["accuracy"],
        predict=lambda output: {"digit": output.argmax(1)},
    )
