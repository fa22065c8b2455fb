"""Compare a model with a dummy, as scikit-learn's DummyClassifier and DummyRegressor are: it ignores its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trainyard.etl.metrics.classification import Classification
from trainyard.etl.metrics.family import MetricFamily, Sums
from trainyard.etl.metrics.regression import Regression, compute_spread
from trainyard.schemas.specs.metrics import sign


def compute_dummy_metrics(family: MetricFamily, sums: Sums) -> dict[str, float]:
    """Return the metrics of a dummy that always gives the most frequent class of the rows, or the mean of their labels.

    Args:
        family: The family of metrics.
        sums: Its sums; the first resample counts.

    Returns:
        Accuracy, mse, rmse and r2, as far as the family has them and the sums determine them.
    """
    if isinstance(family, Classification) and "accuracy" in family.metrics:
        outcomes = sums["outcomes"][0]
        rows = outcomes[None, :, 0] if outcomes.ndim == 2 else outcomes.sum(axis=2)
        return {"accuracy": float((rows.max(axis=1) / rows.sum(axis=1)).mean())} if rows.sum(axis=1).all() else {}
    if isinstance(family, Regression):
        errors = sums["errors"][0]
        spread = compute_spread(errors)
        if spread.all():  # otherwise all labels are equal, or nearly
            variance = spread / errors[:, 0]
            metrics = {"mse": variance.mean(), "rmse": np.sqrt(variance).mean(), "r2": 0.0}
            return {name: float(value) for name, value in metrics.items() if name in family.metrics}
    return {}


def list_warnings(metrics: Mapping[str, Any], dummy: Mapping[str, float]) -> Iterator[str]:
    """Yield a sentence for the first metric in which a model is worse than a dummy.

    Args:
        metrics: The metrics of the model.
        dummy: Those of a dummy on the same rows.
    """
    for name, value in metrics.items():
        if name in dummy and value is not None and sign(name) * (value - dummy[name]) < 0:
            constant = "the most frequent class" if name == "accuracy" else "the mean of the labels"
            yield (
                f"The {name}, {value:.4g}, is worse than {dummy[name]:.4g}, that of always giving {constant}. Train "
                "for more epochs or with another learning rate, unless another metric is what counts."
            )
            return
