"""Metrics that users provide equal torchmetrics in one process."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import metrics

from tests.etl.metrics import own
from tests.etl.metrics.model_metrics import compute_metrics
from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import OutputSpec

SPEC = OutputSpec((3,), (), 3, "softmax")
MODULE = "tests.etl.metrics.own"


def test_a_metric_of_torchmetrics_equals_its_value_in_one_process():
    rng = np.random.default_rng(0)
    output, truth = rng.normal(size=(200, 3)).astype(np.float32), rng.integers(0, 3, 200)
    computed = compute_metrics([f"{MODULE}:top"], SPEC, output, truth, cuts=[3, 77])
    assert computed.metrics == {
        f"{MODULE}:top": pytest.approx(own.top()(torch.tensor(output), torch.tensor(truth)).item())
    }
    assert computed.intervals == {}


@pytest.mark.parametrize(
    ("name", "reference"), [("r2", metrics.r2_score), ("explained_variance", metrics.explained_variance_score)]
)
@pytest.mark.parametrize("mean", [0, 1e4, 1e6])
def test_differences_of_sums_are_exact_for_labels_with_a_large_mean(name, reference, mean):
    """In float32 both metrics are 0.98 at a mean of 1e4, and 0 at 1e6."""
    rng = np.random.default_rng(0)
    truth = (mean + rng.normal(size=5000)).astype(np.float32)
    output = (truth + 0.3 * rng.normal(size=5000)).astype(np.float32)
    spec = OutputSpec((), (), None, "none")
    computed = compute_metrics([f"{MODULE}:{name}"], spec, output, truth, cuts=[100, 2000]).metrics[f"{MODULE}:{name}"]
    assert computed == pytest.approx(reference(truth.astype(np.float64), output.astype(np.float64)), abs=1e-4)


def test_a_metric_with_integer_states_and_thresholds_equals_its_value_in_one_process():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 300)
    output = np.clip(rng.normal(truth, 1), 0, 1).astype(np.float32)
    computed = compute_metrics([f"{MODULE}:auroc"], OutputSpec((), (), 2, "none"), output, truth, cuts=[9])
    expected = own.auroc()(torch.tensor(output), torch.tensor(truth)).item()
    assert computed.metrics[f"{MODULE}:auroc"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gathered", "state 'value' is not a sum"),
        ("nothing", "returned a value of type int; return a torchmetrics.Metric"),
        ("missing", "cannot be created: AttributeError"),
    ],
)
def test_a_metric_that_cannot_be_merged_is_refused(name, message):
    with pytest.raises(TrainyardError, match=f"metric '{MODULE}:{name}'.*{message}"):
        compute_metrics([f"{MODULE}:{name}"], SPEC, np.zeros((1, 3)), np.zeros(1))
