"""A network of numbers and embedded categories, whose output is the logarithm of the price."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainyard.trainer import Recipe

CATEGORIES = ("brand", "cd", "speakers", "screen")


class Prices(nn.Module):
    """What a price changes by is a share of it, so the network adds up logarithms."""

    def __init__(self, sizes: list[int], numbers: int, typical: float) -> None:
        super().__init__()
        self.typical = typical
        self.embeddings = nn.ModuleList(nn.Embedding(size, 1) for size in sizes)
        self.linear = nn.Linear(numbers, 1)

    def forward(self, numbers: Tensor, *categories: Tensor) -> Tensor:
        parts = [embed(column) for embed, column in zip(self.embeddings, categories, strict=True)]
        return self.typical * torch.stack([self.linear(numbers), *parts]).sum(0).squeeze(1).exp()


def network(categories: dict[str, int], learning_rate: float = 0.01, typical: float = 2000.0) -> Recipe:
    """Return the recipe.

    Args:
        categories: The number of indices of each column.
        learning_rate: The learning rate.
        typical: About the price of a computer, in dollars.
    """
    return Recipe(
        model=Prices([categories[name] for name in CATEGORIES], numbers=5, typical=typical),
        features=["numbers", *CATEGORIES],
        label="price",
        loss=nn.L1Loss(),
        learning_rate=learning_rate,
        normalize="element",
        metrics=["mae", "r2"],
        predict=lambda output: {"price": output},
    )
