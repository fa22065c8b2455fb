"""A small convolutional network for 8 x 8 digits."""

from __future__ import annotations

from torch import nn, optim

from trainyard.trainer import Recipe


def convnet(width: int = 32, learning_rate: float = 3e-3) -> Recipe:
    model = nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * width * 4 * 4, 10),
    )  # fmt: skip
    return Recipe(
        model=model,
        features="image",
        label="label",
        classes=10,
        normalize="all",
        learning_rate=learning_rate,
        schedule=lambda optimizer, updates: optim.lr_scheduler.OneCycleLR(
            optimizer, learning_rate, total_steps=updates
        ),
        metrics=["accuracy"],
        predict=lambda output: {"digit": output.argmax(1), "probability": output.softmax(1).amax(1)},
    )
