"""A small convolutional network. The workers decode JPEG files, and mirror some of those that they train on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from trainyard.trainer import Recipe, decode_rgb


class Convnet(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, classes),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Tensor:
        """Return the logits (rows, classes) of images (rows, 3, height, width) with values from 0 to 255."""
        return self.layers(image / 128 - 1)


def mirror(image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
    """Return the image, or its mirror image in half of the cases."""
    return image[:, :, ::-1] if random.random() < 0.5 else image


def convnet(classes: int, width: int = 16) -> Recipe:
    return Recipe(
        model=Convnet(width, classes),
        features="image",
        label="label",
        classes=classes,
        decode={"image": decode_rgb},
        augment={"image": mirror},
        learning_rate=0.01,
        metrics=["accuracy"],
        predict=lambda output: {"photograph": output.argmax(1)},
    )
