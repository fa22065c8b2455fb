"""Functions that return metrics of torchmetrics, as users provide them."""

from __future__ import annotations

import torch
from torchmetrics import CatMetric, Metric
from torchmetrics.aggregation import RunningMean
from torchmetrics.classification import (
    BinaryAUROC,
    BinaryPrecision,
    BinaryPrecisionRecallCurve,
    BinaryRecall,
    BinaryROC,
    MulticlassAccuracy,
    MulticlassF1Score,
)
from torchmetrics.regression import ExplainedVariance, MeanAbsoluteError, MeanSquaredError, R2Score
from torchmetrics.wrappers import ClasswiseWrapper, LambdaInputTransformer, MinMaxMetric, MultioutputWrapper, Running


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


def combined() -> Metric:
    return BinaryPrecision() + 2 * BinaryRecall()


def shared() -> Metric:
    recall = BinaryRecall()
    return BinaryPrecision() * recall / (BinaryPrecision() + recall)


def doubled() -> Metric:
    return LambdaInputTransformer(MeanAbsoluteError(), lambda output: 2 * output)


def of_each_output() -> Metric:
    return MultioutputWrapper(MeanSquaredError(), num_outputs=2)


def combined_gathered() -> Metric:
    return BinaryRecall() + BinaryAUROC()


def running() -> Metric:
    return Running(MeanSquaredError(), window=2) + 1


def running_mean() -> Metric:
    return RunningMean()


def extremes() -> Metric:
    return MinMaxMetric(BinaryRecall())


class Constant(Metric):
    """A metric that keeps its rows outside of states."""

    def update(self, output: torch.Tensor, truth: torch.Tensor) -> None:
        self.rows = len(output)

    def compute(self) -> torch.Tensor:
        return torch.tensor(1.0)


def stateless() -> Metric:
    return Constant()


class Batches(Metric):
    """A metric whose state is a list, although it is reduced with a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("values", [], dist_reduce_fx="sum")

    def update(self, output: torch.Tensor, truth: torch.Tensor) -> None: ...

    def compute(self) -> torch.Tensor:
        return torch.tensor(1.0)


def listed() -> Metric:
    return Batches()


def curve() -> Metric:
    return BinaryROC(thresholds=100)


def curve_of_precision() -> Metric:
    return BinaryPrecisionRecallCurve(thresholds=100)


def by_class() -> Metric:
    return ClasswiseWrapper(MulticlassF1Score(3, average=None))


class Total(Metric):
    """The sum of the output, in a type of its own choice."""

    def __init__(self, convert: object) -> None:
        super().__init__()
        self.convert = convert
        self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum")

    def update(self, output: torch.Tensor, truth: torch.Tensor) -> None:
        self.total += output.sum()

    def compute(self) -> object:
        if not self.total:
            raise ValueError("no rows")
        return self.convert(self.total)  # type: ignore[operator]


def total_as_float() -> Metric:
    return Total(float)


def total_as_dict() -> Metric:
    return Total(lambda total: {"total": total})
