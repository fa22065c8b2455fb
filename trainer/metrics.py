"""Metrics by name, and their states, which are summed over the parts of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics import classification as of_classes
from torchmetrics import regression as of_numbers

from trainyard.contract.errors import TrainyardError

CURVE_THRESHOLDS = 1000

OF_CLASSES: dict[str, Callable[[int], Metric]] = {
    "accuracy": lambda n: of_classes.MulticlassAccuracy(n, average="micro"),
    "precision": lambda n: of_classes.MulticlassPrecision(n),
    "recall": lambda n: of_classes.MulticlassRecall(n),
    "f1": lambda n: of_classes.MulticlassF1Score(n),
    "auroc": lambda n: of_classes.MulticlassAUROC(n, thresholds=CURVE_THRESHOLDS),
    "confusion_matrix": lambda n: of_classes.MulticlassConfusionMatrix(n),
}
OF_NUMBERS: dict[str, Callable[[], Metric]] = {
    "mae": of_numbers.MeanAbsoluteError,
    "mse": of_numbers.MeanSquaredError,
    "rmse": lambda: of_numbers.MeanSquaredError(squared=False),
    "r2": of_numbers.R2Score,
}

State = dict[str, NDArray[Any]]
"""The sums that a collection of metrics has gathered, by metric and name of the sum."""


def named(names: Iterable[str], classes: int | None) -> MetricCollection:
    """The metrics called `names`; precision, recall, F1 and AUROC are means over classes.

    Raises TrainyardError for a classification metric without a number of `classes`.
    """
    chosen: dict[str, Metric | MetricCollection] = {}
    for name in names:
        if name in OF_CLASSES:
            if classes is None:
                raise TrainyardError(
                    f"metric {name!r} is one of classification, and the recipe does not say how many classes there "
                    f"are. Write classes= in the recipe, or choose among {', '.join(OF_NUMBERS)}."
                )
            chosen[name] = OF_CLASSES[name](classes)
        else:
            chosen[name] = OF_NUMBERS[name]()
    return MetricCollection(chosen, compute_groups=False)


def state(metrics: MetricCollection) -> State:
    """What has been gathered so far."""
    found = {}
    for name, metric in metrics.items():
        for key in metric._defaults:
            found[f"{name}.{key}"] = np.asarray(getattr(metric, key).cpu().numpy())
    return found


def merged(metrics: MetricCollection, states: Iterable[Mapping[str, NDArray[Any]]]) -> dict[str, Any]:
    """The values of `metrics` over all of `states`: floats, and nested lists of a matrix."""
    total: dict[str, Tensor] = {}
    for part in states:
        for key, value in part.items():
            tensor = torch.as_tensor(value)
            total[key] = total[key] + tensor if key in total else tensor
    for key, tensor in total.items():
        name, attribute = key.split(".")
        setattr(metrics[name], attribute, tensor)
        metrics[name]._update_count = 1
    return {name: _plain(value) for name, value in metrics.compute().items()}


def _plain(value: Tensor) -> Any:
    return value.item() if value.ndim == 0 else value.tolist()
