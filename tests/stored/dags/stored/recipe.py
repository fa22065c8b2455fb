from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from trainyard.trainer import Recipe


class Network(nn.Module):
    def __init__(self, fields: int, kinds: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(fields, 2)
        self.output = nn.Linear(4, kinds)

    def forward(self, size: Tensor, field: Tensor) -> Tensor:
        return self.output(torch.cat([size, self.embedding(field)], dim=1))


def network(categories: dict[str, Any]) -> Recipe:
    return Recipe(
        model=Network(categories["field"], categories["kind"]), features=["size", "field"], label="kind",
        classes=categories["kind"], normalize="element", learning_rate=0.05, metrics=["accuracy"],
        predict=lambda output: {"kind": output.argmax(1)},
    )  # fmt: skip
