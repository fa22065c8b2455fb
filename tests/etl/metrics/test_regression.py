"""Regression metrics equal those of scikit-learn."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from tests.etl.metrics.model_metrics import compute_metrics
from trainyard.errors import TrainyardError
from trainyard.etl.metrics import build_families, regression
from trainyard.etl.metrics.family import OutputSpec, ScoredRows


@pytest.mark.parametrize(("output", "label"), [((), ()), ((1,), ()), ((3,), (3,))])
def test_metrics_equal_scikit_learns(output, label):
    rng = np.random.default_rng(0)
    truth = rng.normal(5, 2, (300, *label))
    guess = truth + rng.normal(0, 1, truth.shape)
    names = ["mae", "mse", "rmse", "r2"]
    spec = OutputSpec(output, label, None, "none")
    metrics = compute_metrics(names, spec, guess.reshape(-1, *output), truth, cuts=[7, 120]).metrics
    assert metrics["mae"] == pytest.approx(reference.mean_absolute_error(truth, guess))
    assert metrics["mse"] == pytest.approx(reference.mean_squared_error(truth, guess))
    assert metrics["rmse"] == pytest.approx(reference.root_mean_squared_error(truth, guess))
    assert metrics["r2"] == pytest.approx(reference.r2_score(truth, guess))


def test_logarithms_of_rates_are_compared_as_rates():
    rng = np.random.default_rng(0)
    rate = rng.uniform(1, 9, 300)
    truth = rng.poisson(rate)
    names, spec = ["mae", "mse", "rmse", "r2"], OutputSpec((), (), None, "exp")
    metrics = compute_metrics(names, spec, np.log(rate), truth).metrics
    expected = compute_metrics(names, OutputSpec((), (), None, "none"), rate, truth).metrics
    assert metrics == pytest.approx(expected)


def test_the_loss_of_the_logarithm_of_a_rate_is_the_error_of_the_rate():
    (family,) = build_families(["mae"], OutputSpec((), (), None, "exp"))
    assert family.compute_losses(ScoredRows(np.log([3.0, 8.0]), np.array([1, 9]))) == pytest.approx([2, 1])


def compute_exactly(truth: np.ndarray, guess: np.ndarray) -> float:
    """Return R2 in rational numbers."""
    exact = [Fraction(value) for value in truth.tolist()]
    mean = sum(exact) / len(exact)
    errors = sum((Fraction(value) - other) ** 2 for value, other in zip(guess.tolist(), exact, strict=True))
    return float(1 - errors / sum((value - mean) ** 2 for value in exact))


@settings(max_examples=40)
@given(
    mean=st.sampled_from([0.0, 1.0, -1e4, 1e8, -1e8, 1e12]),
    deviation=st.sampled_from([1e-2, 1.0, 1e6]),
    noise=st.sampled_from([0.01, 0.1, 1.0]),
    outlier=st.sampled_from([0.0, 1e3]),
    seed=st.integers(0, 1000),
)
def test_r2_is_right_wherever_the_labels_are(mean, deviation, noise, outlier, seed):
    rng = np.random.default_rng(seed)
    truth = mean + deviation * rng.normal(size=200)
    truth[0] += outlier * deviation
    guess = truth + noise * deviation * rng.normal(size=200)
    model = compute_metrics(["r2"], OutputSpec((), (), None, "none"), guess, truth, cuts=[7, 120])
    assert model.metrics["r2"] == pytest.approx(compute_exactly(truth, guess), abs=1e-9)
    low, high = model.intervals["r2"]
    assert low - 1e-9 <= model.metrics["r2"] <= high + 1e-9 or noise == 1.0 or outlier


def test_r2_of_labels_that_are_all_equal_is_undefined():
    truth = np.full(50, 1e8 + 0.1)
    metrics = compute_metrics(["r2", "mse"], OutputSpec((), (), None, "none"), truth + 1, truth, cuts=[20]).metrics
    assert metrics["r2"] is None and metrics["mse"] == pytest.approx(1)


@settings(max_examples=40)
@given(
    label=st.sampled_from([0.3, 0.1, -7.7, 1e6 + 0.1]),
    distance=st.sampled_from([0.1, 0.2, -3.3, 1e5]),
    rows=st.sampled_from([1, 2, 3, 7, 50, 5000]),
)
def test_r2_of_a_slice_whose_labels_are_all_equal_has_no_value(label, distance, rows):
    truth = np.concatenate([np.full(5001, label + distance), np.full(rows, label)])
    values = np.where(np.arange(len(truth)) < 5001, "other", "equal")
    spec = OutputSpec((), (), None, "none")
    slices = compute_metrics(["r2"], spec, truth + 0.1, truth, slice_by=values, cuts=[2000]).slices
    assert [(slice.metrics, slice.intervals) for slice in slices] == [({"r2": None}, {})] * 2


def test_an_output_of_another_shape_is_refused():
    with pytest.raises(TrainyardError, match=r"'mae' is for regression: .* shape \[4\], one of the label \[\]"):
        compute_metrics(["mae"], OutputSpec((4,), (), None, "none"), np.zeros((1, 4)), np.zeros(1))


@pytest.mark.parametrize(
    ("labels", "center"),
    [
        (np.array([[3, 1], [5, 1], [100, 2]]), (5.0, 1.0)),
        (np.array([[np.nan], [2.0]]), (0.0,)),
        (np.array([[np.inf], [np.inf]]), (0.0,)),
        (np.empty((0, 1)), (0.0,)),
    ],
)
def test_the_center_is_the_median_of_labels_and_zero_without_one(labels, center):
    (family,) = regression.center_labels([regression.Regression(("r2",), len(center))], labels)
    assert family.center == center
