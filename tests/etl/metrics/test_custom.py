"""Metrics that users provide equal torchmetrics in one process."""

from __future__ import annotations

import numpy as np
import pytest
import torch

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
