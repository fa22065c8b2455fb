"""A small network whose steps take time, so that something can happen between them."""

from __future__ import annotations

import time

from torch import Tensor, nn

from trainyard.trainer import Recipe


class Slow(nn.Linear):
    """A linear layer that takes 0.2 s."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the layer."""
        time.sleep(0.2)
        return super().forward(x)


def network() -> Recipe:
    """Return the recipe."""
    return Recipe(model=Slow(2, 3), features="x", label="label", classes=3, learning_rate=0.1)
