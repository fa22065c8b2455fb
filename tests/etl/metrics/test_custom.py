"""Metrics of the user's, against torchmetrics in one process."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.etl.metrics import own
from tests.etl.metrics.model_metrics import model_metrics
from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import Task

TASK = Task((3,), (), 3, "softmax")
HERE = "tests.etl.metrics.own"


def test_a_metric_of_torchmetrics_is_what_it_is_in_one_process():
    rng = np.random.default_rng(0)
    output, truth = rng.normal(size=(200, 3)).astype(np.float32), rng.integers(0, 3, 200)
    found = model_metrics([f"{HERE}:top"], TASK, output, truth, cuts=[3, 77])
    assert found.metrics == {f"{HERE}:top": pytest.approx(own.top()(torch.tensor(output), torch.tensor(truth)).item())}
    assert found.intervals == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gathered", "state 'value' is not a sum"),
        ("nothing", "returned a int; return one of torchmetrics"),
        ("missing", "cannot be made: AttributeError"),
    ],
)
def test_what_cannot_be_merged_is_refused(name, message):
    with pytest.raises(TrainyardError, match=f"metric '{HERE}:{name}'.*{message}"):
        model_metrics([f"{HERE}:{name}"], TASK, np.zeros((1, 3)), np.zeros(1))
