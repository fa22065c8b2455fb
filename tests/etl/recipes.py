"""A recipe whose predictions are known, because training does not change its network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainyard.trainer.model.recipe import Recipe


class Total(nn.Module):
    """Return the sum of all numbers of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.sum = nn.Parameter(torch.ones(())), nn.Identity()

    def forward(self, *columns: Tensor) -> Any:
        numbers = torch.cat([column.float().reshape(len(column), -1) for column in columns], 1)
        return self.sum(numbers.sum(1)) * self.one


class Both(Total):
    """Return the sum in a dict."""

    def forward(self, *columns: Tensor) -> Any:
        return {"total": super().forward(*columns)}


class Elements(Total):
    """Return each number of a variable-length row."""

    def forward(self, *columns: Tensor) -> Any:
        return columns[0].float() * self.one


class Twice(Total):
    """Return twice the sum, with other weights."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.full((), 2.0))


NETWORKS = {"Total": Total, "Both": Both, "Elements": Elements, "Twice": Twice}
TEMPERATURE = nn.Parameter(torch.ones(()))
PREDICTIONS = {
    "learned": lambda output: {"prediction": output * TEMPERATURE},
    "tensor": lambda output: {"prediction": output},
    "no dict": lambda output: output,
    "list": lambda output: {"prediction": [0, 1]},
    "half": lambda output: {"prediction": output.bfloat16()},
    "uint8": lambda output: {"prediction": (output + 200).to(torch.uint8)},
    "uint64": lambda output: {"prediction": output.to(torch.uint64)},
    "complex": lambda output: {"prediction": torch.complex(output, output)},
    "mean": lambda output: {"prediction": torch.ones(())},
}


def total(
    features: str | Sequence[str] = "x", label: str = "y", model: str = "Total", prediction: str = "tensor"
) -> Recipe:
    return Recipe(
        model=NETWORKS[model](),
        features=features,
        label=label,
        loss=lambda output, label: (output["total"] if isinstance(output, dict) else output).sum() * 0,
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.0),
        predict=PREDICTIONS[prediction],
    )


def autoencoder() -> Recipe:
    return Recipe(model=nn.Linear(8, 8), features="x", label="x", loss=nn.MSELoss())


LOSSES = {
    "BCELoss": nn.BCELoss(),
    "binary_cross_entropy": functional.binary_cross_entropy,
    "partial binary_cross_entropy": partial(functional.binary_cross_entropy, weight=torch.ones(())),
    "binary_cross_entropy_with_logits": functional.binary_cross_entropy_with_logits,
    "NLLLoss": nn.NLLLoss(),
    "nll_loss": functional.nll_loss,
    "partial nll_loss": partial(functional.nll_loss, ignore_index=1),
    "CrossEntropyLoss": nn.CrossEntropyLoss(ignore_index=1),
}


def with_loss(loss: str, classes: int | None = None) -> Recipe:
    """Return a recipe of one of `LOSSES`, with one output for those of binary models, and three for others."""
    binary = "binary" in loss or "BCE" in loss
    head = nn.Sequential(nn.Flatten(0), nn.Sigmoid()) if binary else nn.LogSoftmax(1)
    return Recipe(
        model=nn.Sequential(nn.Linear(8, 1 if binary else 3), head), features="x", label="label", loss=LOSSES[loss],
        classes=classes,
    )  # fmt: skip


def weighing() -> Recipe:
    def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        losses = nn.functional.cross_entropy(model(batch), batch["label"], reduction="none")
        return (losses * batch["weight"]).mean()

    return Recipe(model=nn.Linear(8, 3), features="x", label="label", step=step, extra_columns=["weight"])


class Failing(nn.Linear):
    """Raise for rows with large numbers."""

    def forward(self, numbers: Tensor) -> Tensor:
        if numbers.abs().max() > 100:
            raise ValueError("too large")
        return super().forward(numbers)


def failing() -> Recipe:
    return Recipe(model=Failing(8, 3), features="x", label="label", loss=nn.CrossEntropyLoss(), classes=3)
