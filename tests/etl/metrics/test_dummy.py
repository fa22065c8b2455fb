"""A model is compared with scikit-learn's dummies, which ignore their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import accuracy_score, mean_squared_error

from tests.etl.metrics.model_metrics import compute_metrics
from trainyard.etl.metrics.dummy import compute_dummy_metrics, list_warnings
from trainyard.etl.metrics.family import OutputSpec
from trainyard.etl.metrics.regression import Regression

RNG = np.random.default_rng(0)
CLASSES = RNG.choice(3, 200, p=[0.5, 0.3, 0.2])
LABELS = (RNG.random((200, 2)) < [0.9, 0.4]).astype(np.int64)
NUMBERS = RNG.normal([1e6, -3], [2, 5], (200, 2))


def list_warnings_of(names: list[str], spec: OutputSpec, output: Any, truth: Any) -> list[str]:
    return list(compute_metrics(names, spec, output, truth).warnings)


def classify(truth: Any) -> float:
    """Return the accuracy of scikit-learn's dummy."""
    inputs = np.zeros((len(truth), 1))
    return float(accuracy_score(truth, DummyClassifier(strategy="most_frequent").fit(inputs, truth).predict(inputs)))


def test_a_model_of_classes_is_compared_with_the_most_frequent_one() -> None:
    spec = OutputSpec((3,), (), 3, "softmax")
    always_last = np.tile([0.0, 0.0, 1.0], (200, 1))
    (warning,) = list_warnings_of(["f1", "accuracy"], spec, always_last, CLASSES)
    share = (CLASSES == 2).mean()
    assert warning.startswith(
        f"The accuracy, {share:.4g}, is worse than {classify(CLASSES):.4g}, that of always giving the most frequent"
    )
    assert list_warnings_of(["accuracy"], spec, np.tile([1.0, 0.0, 0.0], (200, 1)), CLASSES) == []
    assert list_warnings_of(["accuracy"], spec, np.eye(3)[CLASSES], CLASSES) == []
    assert list_warnings_of(["f1"], spec, always_last, CLASSES) == [], "only its accuracy is known"


@pytest.mark.parametrize(("names", "truth"), [((), LABELS[:, 0]), ((2,), LABELS)])
def test_a_model_of_labels_is_compared_with_the_most_frequent_value_of_each(names: tuple[int, ...], truth: Any) -> None:
    spec = OutputSpec(names, names, 2, "sigmoid")
    expected = np.mean([classify(column) for column in truth.reshape(200, -1).T])
    (warning,) = list_warnings_of(["accuracy"], spec, -np.ones_like(truth, np.float64), truth)
    assert f"is worse than {expected:.4g}," in warning
    assert list_warnings_of(["accuracy"], spec, truth * 2.0 - 1, truth) == []


@pytest.mark.parametrize("truth", [NUMBERS[:, 1], NUMBERS])
def test_a_model_of_numbers_is_compared_with_their_mean(truth: Any) -> None:
    shape = truth.shape[1:]
    spec = OutputSpec(shape, shape, None, "none")
    inputs = np.zeros((200, 1))
    mean = DummyRegressor().fit(inputs, truth).predict(inputs)
    (warning,) = list_warnings_of(["mae", "mse", "r2"], spec, np.zeros_like(truth), truth)
    assert f"is worse than {mean_squared_error(truth, mean):.4g}, that of always giving the mean" in warning
    (warning,) = list_warnings_of(["r2"], spec, np.zeros_like(truth), truth)
    assert "is worse than 0, that of" in warning
    assert list_warnings_of(["mse", "rmse", "r2"], spec, truth + 0.1, truth) == []


def test_a_constant_label_has_no_dummy() -> None:
    spec = OutputSpec((), (), None, "none")
    assert list_warnings_of(["mse"], spec, np.zeros(200), np.full(200, 7.0)) == []
    assert compute_dummy_metrics(Regression(("mse",), 1), {"errors": np.zeros((1, 1, 5))}) == {}


def test_a_metric_without_a_value_is_not_compared() -> None:
    assert list(list_warnings({"accuracy": None, "mse": 2.0}, {"accuracy": 0.5, "mse": 1.0})) == [
        "The mse, 2, is worse than 1, that of always giving the mean of the labels. Train for more epochs or with "
        "another learning rate, unless another metric is what counts."
    ]
