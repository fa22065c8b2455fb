"""Metrics of regression, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as truth_of

from tests.etl.metrics.model_metrics import model_metrics
from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import Task


@pytest.mark.parametrize(("output", "label"), [((), ()), ((1,), ()), ((3,), (3,))])
def test_metrics_are_scikit_learns(output, label):
    rng = np.random.default_rng(0)
    truth = rng.normal(5, 2, (300, *label))
    guess = truth + rng.normal(0, 1, truth.shape)
    names = ["mae", "mse", "rmse", "r2"]
    task = Task(output, label, None, "none")
    found = model_metrics(names, task, guess.reshape(-1, *output), truth, cuts=[7, 120]).metrics
    assert found["mae"] == pytest.approx(truth_of.mean_absolute_error(truth, guess))
    assert found["mse"] == pytest.approx(truth_of.mean_squared_error(truth, guess))
    assert found["rmse"] == pytest.approx(truth_of.root_mean_squared_error(truth, guess))
    assert found["r2"] == pytest.approx(truth_of.r2_score(truth, guess))


def test_an_output_of_another_shape_is_refused():
    with pytest.raises(TrainyardError, match=r"'mae' is one of regression: .* shape \[4\], one of the label \[\]"):
        model_metrics(["mae"], Task((4,), (), None, "none"), np.zeros((1, 4)), np.zeros(1))
