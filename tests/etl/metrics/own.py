"""Functions that return metrics of torchmetrics, as users provide them."""

from __future__ import annotations

from torchmetrics import CatMetric, Metric
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy
from torchmetrics.regression import ExplainedVariance, R2Score


def top() -> Metric:
    return MulticlassAccuracy(3, top_k=2, average="micro")


def gathered() -> Metric:
    return CatMetric()


def nothing() -> int:
    return 1


def second() -> Metric:
    return MulticlassAccuracy(10, top_k=2, average="micro")


def auroc() -> Metric:
    return BinaryAUROC(thresholds=[0.0, 0.25, 0.5, 0.75, 1.0])


def r2() -> Metric:
    return R2Score()


def explained_variance() -> Metric:
    return ExplainedVariance()
