"""The normalization of columns keeps their differences, however large their mean is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from trainyard.schemas.manifest import Column, Statistics
from trainyard.trainer.model.network import Network, compute_normalization
from trainyard.trainer.model.recipe import Per

TIMES = 1.7e9 + 30 * np.array([[-1.5, 0, 1], [-0.5, 1, 2], [0, -2, 0.5], [0.5, 0, -1], [1.5, 1, -2.5]])


class Identity(nn.Module):
    def forward(self, values: Tensor, *_: Any) -> Tensor:
        return values


def normalize(values: Any, per: Per, kind: str = "tensor") -> Tensor:
    """Return the normalized values of a column of doubles."""
    shape = () if kind == "list" else values.shape[1:]
    flat = values.reshape(len(values) if kind == "tensor" else -1, *(shape or (1,)))
    column = Column(name="x", kind=kind, type="double", shape=shape)
    statistics = Statistics(count=len(flat), mean=tuple(flat.mean(0)), std=tuple(flat.std(0)))
    network = Network(Identity(), (column,), compute_normalization({"x": statistics}, (column,), per))
    assert not network.state_dict()
    tensor = torch.from_numpy(values)
    return network({"x": tensor, "x_mask": torch.ones(tensor.shape, dtype=torch.bool)})


@pytest.mark.parametrize(("per", "axis"), [("element", 0), ("channel", 0), ("all", None)])
def test_doubles_with_a_large_mean_are_normalized(per: Per, axis: int | None) -> None:
    normalized = normalize(TIMES, per)
    assert normalized.dtype == torch.float32
    assert normalized.numpy() == pytest.approx((TIMES - TIMES.mean(axis)) / TIMES.std(axis), abs=1e-5)


@pytest.mark.parametrize("values", [TIMES[:, 0]])
def test_scalars_and_variable_length_doubles_are_normalized(values: Any) -> None:
    expected = (values - values.mean()) / values.std()
    scalar = Column(name="x", kind="scalar", type="double")
    statistics = Statistics(count=5, mean=(values.mean(),), std=(values.std(),))
    network = Network(Identity(), (scalar,), compute_normalization({"x": statistics}, (scalar,), "element"))
    assert network({"x": torch.from_numpy(values)}).numpy() == pytest.approx(expected, abs=1e-5)
    assert normalize(values.reshape(1, -1), "element", "list").numpy()[0] == pytest.approx(expected, abs=1e-5)


def test_doubles_without_normalization_become_floats() -> None:
    column = Column(name="x", kind="scalar", type="double")
    output = Network(Identity(), (column,), {})({"x": torch.tensor([0.5], dtype=torch.float64)})
    assert output.dtype == torch.float32
