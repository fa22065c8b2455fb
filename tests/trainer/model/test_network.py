"""The normalization of columns keeps their differences, however large their mean is; models take them as arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column, Statistics
from trainyard.trainer.model.network import Network, compute_normalization
from trainyard.trainer.model.recipe import Per

TIMES = 1.7e9 + 30 * np.array([[-1.5, 0, 1], [-0.5, 1, 2], [0, -2, 0.5], [0.5, 0, -1], [1.5, 1, -2.5]])


class Identity(nn.Module):
    def forward(self, values: Tensor, *_: Any) -> Tensor:
        return values


def normalize(values: Any, per: Per, kind: str = "tensor", type_: str = "double") -> Tensor:
    """Return the normalized values of a column, by default of doubles."""
    shape = () if kind == "list" else values.shape[1:]
    flat = values.reshape(len(values) if kind == "tensor" else -1, *(shape or (1,)))
    column = Column(name="x", kind=kind, type=type_, shape=shape)
    flat = flat.astype(np.longdouble)
    statistics = Statistics(count=len(flat), mean=tuple(map(float, flat.mean(0))), std=tuple(map(float, flat.std(0))))
    network = Network(Identity(), (column,), compute_normalization({"x": statistics}, (column,), per))
    assert not network.state_dict()
    tensor = torch.from_numpy(values)
    return network({"x": tensor, "x_mask": torch.ones(tensor.shape, dtype=torch.bool)})


class Masked(nn.Module):
    """A model with a mask whose rows are the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(3).expand(4, 3), persistent=False)


def test_each_element_of_a_buffer_has_memory_of_its_own_as_broadcasts_need() -> None:
    mask = Network(Masked(), (), {}).get_buffer("model.mask")
    assert mask.tolist() == [[1.0] * 3] * 4
    assert mask.is_contiguous() and mask.untyped_storage().nbytes() == 4 * 3 * 4


@pytest.mark.parametrize(("per", "axis"), [("element", 0), ("channel", 0), ("all", None)])
def test_doubles_with_a_large_mean_are_normalized(per: Per, axis: int | None) -> None:
    normalized = normalize(TIMES, per)
    assert normalized.dtype == torch.float32
    assert normalized.numpy() == pytest.approx((TIMES - TIMES.mean(axis)) / TIMES.std(axis), abs=1e-5)


@pytest.mark.parametrize(("per", "axis"), [("element", 0), ("channel", 0), ("all", None)])
@pytest.mark.parametrize("factor", [1e-300, 1e-200, 1e-13, 1e10, 1e39, 1e200, 1e290])
def test_doubles_of_any_magnitude_are_normalized(factor: float, per: Per, axis: int | None) -> None:
    values = np.random.default_rng(0).normal(size=(50, 3))
    normalized = normalize(values * factor, per)
    assert normalized.dtype == torch.float32
    assert normalized.numpy() == pytest.approx((values - values.mean(axis)) / values.std(axis), abs=1e-4)


@pytest.mark.parametrize("factor", [1e-30, 1e-13, 1e30])
def test_floats_of_any_magnitude_are_normalized(factor: float) -> None:
    values = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    normalized = normalize(values * np.float32(factor), "element", type_="float")
    assert normalized.numpy() == pytest.approx((values - values.mean(0)) / values.std(0), abs=1e-4)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-30, 1e10])
@pytest.mark.parametrize("per", ["element", "channel", "all"])
def test_constants_become_zero(value: float, per: Per) -> None:
    assert normalize(np.full((7, 3), value), per).numpy() == pytest.approx(np.zeros((7, 3)), abs=1e-5)


@pytest.mark.parametrize(("mean", "std"), [(0.0, math.inf), (math.nan, 1.0), (math.inf, math.nan)])
def test_statistics_that_are_not_finite_are_refused(mean: float, std: float) -> None:
    column = Column(name="x", kind="scalar", type="double")
    statistics = Statistics(count=5, mean=(mean,), std=(std,))
    with pytest.raises(TrainyardError, match=r"^normalize='element': column 'x' has the mean .* Remove values that"):
        compute_normalization({"x": statistics}, (column,), "element")


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


class Named(nn.Module):
    """Return its arguments in a dict with attributes, or a distribution, which has logits too."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, *, first: Tensor, second: Tensor) -> Any:
        return self.kind(logits=first - second)


class Output(dict[str, Tensor]):
    """As an output of transformers: a dict whose items are attributes."""

    def __getattr__(self, name: str) -> Tensor:
        if name not in self:
            raise AttributeError(name)
        return self[name]


COLUMNS = tuple(Column(name=name, kind="scalar", type="float") for name in ("a", "b"))
BATCH = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([5.0, 5.0])}


@pytest.mark.parametrize(
    ("keywords", "output"), [({"first": "a", "second": "b"}, -4), ({"first": "b", "second": "a"}, 4)]
)
def test_columns_are_keyword_arguments_and_logits_are_taken_from_the_output(
    keywords: dict[str, str], output: float
) -> None:
    assert Network(Named(Output), COLUMNS, {}, keywords)(BATCH)[0] == output


def test_a_distribution_is_an_output_as_it_is() -> None:
    found = Network(Named(Bernoulli), COLUMNS, {}, {"first": "a", "second": "b"})(BATCH)
    assert isinstance(found, Bernoulli)


def test_a_column_that_is_two_arguments_is_given_twice() -> None:
    class Difference(nn.Module):
        def forward(self, first: Tensor, second: Tensor) -> Tensor:
            return first - second

    assert Network(Difference(), (COLUMNS[0], COLUMNS[0]), {})(BATCH).tolist() == [0, 0]
