"""The difference of two outputs, and the module in which two models begin to differ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainyard.trainer.verification.differences import find_cause, measure_difference


@pytest.mark.parametrize(
    ("expected", "actual", "difference"),
    [
        (torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.0]), 0),
        (torch.tensor([3.0, 4.0]), torch.tensor([3.0, 9.0]), 5 / math.sqrt(90)),
        (torch.zeros(2), torch.ones(2), 1),
        (torch.zeros(2), torch.zeros(2, 1), math.inf),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int64), math.inf),
        (torch.tensor([math.nan, math.inf]), torch.tensor([math.nan, math.inf]), 0),
        (torch.tensor([math.nan, 1.0]), torch.tensor([0.0, 1.0]), math.inf),
        (torch.tensor([math.inf]), torch.tensor([1.0]), math.inf),
        ({"a": [torch.ones(1)]}, {"a": [torch.ones(1)]}, 0),
        ({"a": torch.ones(1)}, {"b": torch.ones(1)}, math.inf),
        (torch.tensor([1 + 1j]), torch.tensor([1 - 1j]), math.sqrt(2)),
        (torch.eye(2).to_sparse(), torch.eye(2).to_sparse(), 0),
        (np.ones(2), np.ones(2), 0),
        (1.5, 1.5, 0),
        (math.nan, math.nan, 0),
        ("mean", "sum", math.inf),
        (object(), object(), 0),
    ],
)
def test_the_difference_is_relative_to_the_larger_norm(expected: Any, actual: Any, difference: float) -> None:
    assert measure_difference(expected, actual) == pytest.approx(difference)


class Scaled(nn.Module):
    """Scale the output of a layer, before or after another one."""

    def __init__(self, scale: float, where: str) -> None:
        super().__init__()
        self.scale, self.where = scale, where
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        return self.second(hidden * self.scale if self.where == "between" else hidden) * self.scale


@pytest.mark.parametrize("where", ["between", "at the end"])
def test_a_difference_between_layers_is_that_of_the_module_around_them(where: str) -> None:
    models = [nn.Sequential(nn.Linear(4, 4), Scaled(scale, where)) for scale in (1.0, 2.0)]
    models[1].load_state_dict(models[0].state_dict())
    cause = find_cause(*models, *[lambda model=model: model(torch.ones(2, 4)) for model in models], 1e-4)  # type: ignore[misc]
    assert cause == (
        "The first difference arises in '1' (Scaled): its attribute 'scale' is 1 in the trained model, and 2 in the "
        "loaded one."
    )
