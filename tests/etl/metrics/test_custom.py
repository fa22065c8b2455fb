"""Metrics that users provide equal torchmetrics in one process."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from sklearn import metrics

from tests.etl.metrics import own
from tests.etl.metrics.model_metrics import compute_metrics
from trainyard.errors import TrainyardError
from trainyard.etl.metrics.custom import build_family
from trainyard.etl.metrics.family import OutputSpec

SPEC = OutputSpec((3,), (), 3, "softmax")
BINARY = OutputSpec((), (), 2, "none")
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


@pytest.mark.parametrize("name", ["combined", "shared"])
def test_a_combination_of_metrics_equals_its_value_in_one_process(name):
    rng = np.random.default_rng(0)
    output, truth = rng.uniform(size=300).astype(np.float32), rng.integers(0, 2, 300)
    computed = compute_metrics([f"{MODULE}:{name}"], BINARY, output, truth, cuts=[9, 200])
    metric = getattr(own, name)()
    metric.update(torch.tensor(output), torch.tensor(truth))
    assert computed.metrics[f"{MODULE}:{name}"] == pytest.approx(metric.compute().item())


@pytest.mark.parametrize("name", ["doubled", "of_each_output"])
def test_a_wrapped_metric_equals_its_value_in_one_process(name):
    rng = np.random.default_rng(0)
    output, truth = rng.normal(size=(2, 300, 2))
    computed = compute_metrics([f"{MODULE}:{name}"], OutputSpec((2,), (2,), None, "none"), output, truth, cuts=[9])
    metric = getattr(own, name)()
    metric.update(torch.tensor(output), torch.tensor(truth))
    assert computed.metrics[f"{MODULE}:{name}"] == pytest.approx(metric.compute().numpy())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gathered", "state 'value' is not a sum"),
        ("combined_gathered", "state 'metric_b.preds' is not a sum"),
        ("listed", "state 'values' is not a sum"),
        ("stateless", "has no states"),
        ("running", "contains a Running, .* MetricInputTransformer and MultioutputWrapper"),
        ("running_mean", "contains a RunningMean"),
        ("by_class", "contains a ClasswiseWrapper"),
        ("extremes", "contains a MinMaxMetric"),
        ("nothing", "returned a value of type int; return a torchmetrics.Metric"),
        ("missing", "cannot be created: AttributeError"),
    ],
)
def test_a_metric_that_cannot_be_merged_is_refused(name, message):
    with pytest.raises(TrainyardError, match=f"metric '{MODULE}:{name}'.*{message}"):
        build_family(f"{MODULE}:{name}")


@pytest.mark.parametrize("name", ["curve", "curve_of_precision"])
def test_a_metric_that_returns_several_values_is_refused_before_there_are_rows(name):
    with pytest.raises(TrainyardError, match=f"metric '{MODULE}:{name}' computes a value of type tuple; .* a tensor"):
        build_family(f"{MODULE}:{name}")


def test_a_metric_that_returns_several_values_only_with_rows_is_refused_by_name():
    with pytest.raises(TrainyardError, match=f"metric '{MODULE}:total_as_dict' computes a value of type dict"):
        compute_metrics([f"{MODULE}:total_as_dict"], SPEC, np.ones((2, 3)), np.zeros(2))


def test_a_metric_may_compute_a_number_of_python():
    computed = compute_metrics([f"{MODULE}:total_as_float"], SPEC, np.ones((2, 3)), np.zeros(2))
    assert computed.metrics == {f"{MODULE}:total_as_float": 6}


def test_a_check_without_rows_does_not_warn():
    with warnings.catch_warnings(action="error"):
        build_family(f"{MODULE}:auroc")
