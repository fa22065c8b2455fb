"""Functions that return metrics of torchmetrics, as users provide them."""

from __future__ import annotations

from torchmetrics import CatMetric, Metric
from torchmetrics.classification import MulticlassAccuracy


def top() -> Metric:
    return MulticlassAccuracy(3, top_k=2, average="micro")


def gathered() -> Metric:
    return CatMetric()


def nothing() -> int:
    return 1


def second() -> Metric:
    return MulticlassAccuracy(10, top_k=2, average="micro")
