"""Regression metrics equal those of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as reference

from tests.etl.metrics.model_metrics import compute_metrics
from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import OutputSpec


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


def test_an_output_of_another_shape_is_refused():
    with pytest.raises(TrainyardError, match=r"'mae' is for regression: .* shape \[4\], one of the label \[\]"):
        compute_metrics(["mae"], OutputSpec((4,), (), None, "none"), np.zeros((1, 4)), np.zeros(1))
