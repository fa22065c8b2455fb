"""The optimizer of a recipe, as a text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LinearLR

from trainyard.trainer.model.optimizer import describe_optimizer


class Hidden(AdamW):
    """An optimizer that does not name its learning rate."""

    def __init__(self, parameters: list[torch.Tensor], weight_decay: float = 0.0, **settings: float) -> None:
        super().__init__(parameters, lr=0.5, weight_decay=0.1, **settings)


class Delegating(Optimizer):
    """An optimizer around another one, as Lookahead and SAM are, that was never initialized itself."""

    def __init__(self, parameters: list[torch.Tensor]) -> None:
        self.param_groups = SGD(parameters, 0.25).param_groups


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda parameters: SGD(parameters, 0.1), "SGD(lr=0.1)"),
        (lambda parameters: SGD(parameters, 0.1, momentum=0.9, nesterov=True),
         "SGD(lr=0.1, momentum=0.9, nesterov=True)"),
        (AdamW, "AdamW(lr=0.001)"),
        (lambda parameters: Adam(parameters, betas=(0.5, 0.9)), "Adam(lr=0.001, betas=(0.5, 0.9))"),
        (lambda parameters: SGD([{"params": each, "lr": 0.1 / n} for n, each in enumerate(parameters, 1)]),
         "SGD(lr=0.1 and 0.05)"),
        (lambda _: SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr": float(number)} for number in range(9)]),
         "SGD(lr=0.0 and 1.0 and 2.0 and 6 others)"),
        (Hidden, "Hidden(lr=0.5, weight_decay=0.1)"),
        (Delegating, "Delegating(lr=0.25)"),
    ],
)  # fmt: skip
def test_a_text_has_the_learning_rate_and_what_differs_from_the_defaults(
    build: Callable[[list[torch.Tensor]], Optimizer], text: str
) -> None:
    assert describe_optimizer(build(list(nn.Linear(2, 3).parameters()))) == text


def test_the_learning_rate_is_the_one_before_a_schedule() -> None:
    optimizer = SGD(nn.Linear(2, 3).parameters(), 0.1)
    LinearLR(optimizer, start_factor=0.25)
    assert describe_optimizer(optimizer) == "SGD(lr=0.1)"
