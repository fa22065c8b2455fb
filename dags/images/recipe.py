"""A small convolutional network. The workers decode JPEG files: random parts in training, their center elsewhere."""

from __future__ import annotations

from torch import Tensor, nn

from trainyard.trainer import CenterCrop, RandomResizedCrop, Recipe

SIZE = 32
"""The pixels of an image in each direction, as the network gets it."""


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


def convnet(categories: dict[str, int], width: int = 16) -> Recipe:
    return Recipe(
        model=Convnet(width, categories["photograph"]),
        features="image",
        label="photograph",
        classes=categories["photograph"],
        decode={"image": CenterCrop(SIZE)},
        augment={"image": RandomResizedCrop(SIZE, scale=(0.5, 1.0))},
        learning_rate=0.01,
        metrics=["accuracy"],
        predict=lambda output: {"photograph": output.argmax(1)},
    )
