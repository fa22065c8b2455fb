"""A small convolutional network for 28 x 28 digits, and a head for features of its layers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from trainyard.trainer import Recipe


def convnet(classes: int, reinitialize: Sequence[str] = (), freeze: Sequence[str] = ()) -> Recipe:
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, classes),
    )  # fmt: skip
    return Recipe(
        model=model,
        features="image",
        label="label",
        classes=classes,
        learning_rate=3e-3,
        metrics=["accuracy"],
        predict=lambda output: {"label_": output.argmax(1)},
        reinitialize=reinitialize,
        freeze=freeze,
    )


def head(size: int, classes: int) -> Recipe:
    """Return a recipe for a linear classifier of `size` features."""
    return Recipe(
        model=nn.Linear(size, classes),
        features="features",
        label="label",
        classes=classes,
        learning_rate=3e-3,
        metrics=["accuracy"],
    )
