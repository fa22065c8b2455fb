"""The metrics that a recipe names are those of scikit-learn, and what has no name is refused with what to write."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference
from torch import Tensor, nn, optim
from torchmetrics import MeanAbsoluteError, Metric

from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer import Recipe
from trainyard.trainer.loop import metric_lists
from trainyard.trainer.model.named_metrics import build_metrics
from trainyard.trainer.world import World


def macro(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda label, found: function(label, found, average="macro", zero_division=0)


OF_CLASSES = {
    "accuracy": reference.accuracy_score,
    "precision": macro(reference.precision_score),
    "recall": macro(reference.recall_score),
    "f1": macro(reference.f1_score),
}
OF_NUMBERS = {
    "mae": reference.mean_absolute_error,
    "mse": reference.mean_squared_error,
    "rmse": reference.root_mean_squared_error,
    "r2": reference.r2_score,
}


@pytest.mark.parametrize("name", OF_CLASSES)
def test_a_metric_of_classes_is_that_of_scikit_learn(name: str) -> None:
    """Class 3 of 5 occurs neither among the labels nor among the outputs."""
    generator = torch.Generator().manual_seed(1)
    label = torch.tensor([0, 0, 0, 0, 1, 1, 2, 4]).repeat(40)
    output = torch.rand(len(label), 5, generator=generator) + nn.functional.one_hot(label, 5)
    output[:, 3] = -1
    (metric,) = build_metrics([name], 5).values()
    for part in range(0, len(label), 7):
        metric.update(output[part : part + 7], label[part : part + 7])
    assert metric.compute().item() == pytest.approx(OF_CLASSES[name](label, output.argmax(1)), abs=1e-6)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 60), shares=st.sampled_from([[0.97, 0.03, 0, 0], [0, 1, 0, 0], [0.4, 0.3, 0.2, 0.1]]),
    workers=st.integers(1, 4), seed=st.integers(0, 1 << 32),
)  # fmt: skip
def test_metrics_of_rows_on_any_workers_are_those_of_scikit_learn(
    rows: int, shares: list[float], workers: int, seed: int
) -> None:
    """Classes are rare or do not occur, outputs are equal, labels are ignored or far from 0, and workers lack rows."""
    random = np.random.default_rng(seed)
    label = torch.tensor(np.where(random.random(rows) < 0.1, -100, random.choice(4, rows, p=shares)))
    output = torch.tensor(random.integers(-1, 2, (rows, 4)), dtype=torch.float32)
    counted, worker = label != -100, torch.tensor(random.integers(0, workers, rows))
    number = torch.tensor(random.choice([0, 1e3, -1e6]) + random.normal(size=rows)).float()
    near = number + torch.tensor(random.normal(size=rows)).float()
    numbers = build_metrics([*OF_NUMBERS], None)
    for name, metric in {**build_metrics([*OF_CLASSES], 4, -100), **numbers}.items():
        rows_of = (near, number) if name in numbers else (output, label)
        merged = merge([update(deepcopy(metric), *(part[worker == own] for part in rows_of)) for own in range(workers)])
        if name in numbers:
            expected = OF_NUMBERS[name](number.double(), near.double()) if rows > 1 or name != "r2" else math.nan
            assert merged.compute().item() == pytest.approx(expected, rel=1e-9, nan_ok=True), name
        elif counted.any():
            expected = OF_CLASSES[name](label[counted], output[counted].argmax(1))
            assert merged.compute().item() == pytest.approx(expected, abs=1e-6), name


def update(metric: Metric, output: Tensor, label: Tensor) -> Metric:
    """Add rows in two batches, as far as there are some."""
    for part in (slice(0, 7), slice(7, None)):
        if len(label[part]):
            metric.update(output[part], label[part])
    return metric


def merge(workers: list[Metric]) -> Metric:
    """Return a metric with the states of all workers, as torchmetrics merges them."""
    first, *_ = workers
    for name, reduce in first._reductions.items():
        assert callable(reduce)
        states = [getattr(worker, name) for worker in workers]
        items = [item for state in states for item in state] if isinstance(states[0], list) else torch.stack(states)
        setattr(first, name, reduce(items) if len(items) else items)
    first._update_count = 1
    return first


def test_r2_of_equal_labels_has_no_value() -> None:
    (metric,) = build_metrics(["r2"], None).values()
    for part in torch.full((40,), 0.1).split(7):
        metric.update(part + 1, part)
    assert metric.compute().isnan()


def test_metrics_of_several_numbers_are_means_over_them() -> None:
    label = torch.randn(50, 3, generator=torch.Generator().manual_seed(3)) * torch.tensor([1, 10, 1000])
    output = label + torch.tensor([0.5, 1, 30])
    for name, metric in build_metrics([*OF_NUMBERS], None).items():
        metric.update(output, label)
        assert metric.compute().item() == pytest.approx(OF_NUMBERS[name](label.double(), output.double())), name


def compute_on_first(world: World) -> dict[str, float]:
    """Return metrics of two numbers in each row; all rows are on the first worker."""
    values = {}
    for name, metric in build_metrics([*OF_NUMBERS], None).items():
        if world.is_main:
            metric.update(torch.tensor([[1.0, 4], [2, 5]]), torch.tensor([[2.0, 4], [4, 6]]))
        values[name] = float(metric_lists.compute(metric, world))
    return values


@pytest.mark.ranks
def test_a_worker_without_rows_does_not_know_how_many_numbers_a_row_has() -> None:
    with Workers(2) as workers:
        for values in workers(compute_on_first):
            assert values == pytest.approx({"mae": 1.0, "mse": 1.5, "rmse": (2.5**0.5 + 0.5**0.5) / 2, "r2": -0.5})


@pytest.mark.parametrize(("loss", "is_logarithm"), [(nn.PoissonNLLLoss(), True), (nn.PoissonNLLLoss(False), False)])
def test_logarithms_of_rates_are_compared_as_rates(loss: nn.Module, is_logarithm: bool) -> None:
    rates, label = torch.tensor([1.0, 4, 9]), torch.tensor([2.0, 4, 7])
    (metric,) = recipe(metrics=["mae"], classes=None, loss=loss).metrics_by_name.values()
    metric.update(rates.log() if is_logarithm else rates, label)
    assert metric.compute().item() == pytest.approx(1)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_a_metric_of_numbers_is_that_of_scikit_learn(name: str) -> None:
    label = torch.linspace(-3, 5, 100) ** 2
    output = label + torch.randn(100, generator=torch.Generator().manual_seed(2))
    (metric,) = build_metrics([name], None).values()
    metric.update(output, label)
    assert metric.compute().item() == pytest.approx(OF_NUMBERS[name](label, output), abs=1e-5)


def test_rows_whose_label_the_loss_ignores_do_not_count() -> None:
    output = nn.functional.one_hot(torch.tensor([0, 1, 2, 2, 1, 0]), 3).float()
    label = torch.tensor([0, 1, 2, 2, 0, -100])
    for name, metric in recipe(metrics=[*OF_CLASSES]).metrics_by_name.items():
        metric.update(output, label)
        assert metric.compute().item() == pytest.approx(OF_CLASSES[name](label[:5], output[:5].argmax(1)))


def recipe(**fields: Any) -> Recipe:
    return Recipe(**{"model": nn.Linear(2, 3), "features": "x", "label": "y", "classes": 3} | fields)


def test_a_recipe_of_classes_has_their_loss_and_names_its_metrics() -> None:
    named = recipe(metrics=["accuracy", "f1"])
    assert isinstance(named.loss, nn.CrossEntropyLoss)
    assert [*named.metrics_by_name] == ["accuracy", "f1"]
    assert named.metrics_by_name["f1"] is named.metrics_by_name["f1"], "it has the state of all batches"
    own = {"error": MeanAbsoluteError()}
    assert recipe(metrics=own, loss=nn.MSELoss()).metrics_by_name == own


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metrics": ["acuracy"]}, r"'acuracy', which is none of accuracy, precision, .* or a dict with a metric of"),
        ({"metrics": ["f1"], "classes": None, "loss": nn.MSELoss()}, "'f1' needs the number of classes; set classes="),
        (
            {"metrics": ["accuracy"], "loss": nn.BCEWithLogitsLoss()},
            r"'accuracy' takes an output for each class, and the loss one for each label; write .* BinaryAccuracy\(\)",
        ),
        ({"metrics": "f1"}, r"metrics='f1' is a text; write \['f1'\]"),
        (
            {"learning_rate": 0.1, "optimizer": lambda parameters: optim.SGD(parameters, 0.1)},
            r"learning_rate=0\.1 goes with an optimizer= that takes lr=, such as optim\.SGD",
        ),
    ],
)
def test_a_recipe_without_what_a_name_needs_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        recipe(**fields)


@pytest.mark.parametrize(
    "optimizer", [optim.AdamW, optim.SGD, optim.LBFGS, lambda parameters, lr: optim.Adam(parameters, lr)]
)
def test_the_optimizer_has_the_learning_rate_of_the_recipe(optimizer: Any) -> None:
    made = recipe(optimizer=optimizer, learning_rate=0.25)
    assert made.build_optimizer([*made.model.parameters()]).param_groups[0]["lr"] == 0.25


def test_without_a_learning_rate_it_has_its_own() -> None:
    made = recipe(optimizer=lambda parameters: optim.SGD(parameters, 0.5))
    assert made.build_optimizer([*made.model.parameters()]).param_groups[0]["lr"] == 0.5
