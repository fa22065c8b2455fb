"""Metrics of classification: multiclass, binary and multilabel.

With several classes or labels, precision, recall, F1 and the areas are means over those that occur (macro average); for
a binary model they are those of the positive class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import (
    Contribution,
    Floats,
    Integers,
    Link,
    MetricFamily,
    OutputSpec,
    ScoredRows,
    Sums,
    divide,
    number_rows,
)

BINS = 256
"""Bins of scores, even in log odds, so that scores near 0 and 1 are resolved as well as those in the middle."""
MAX_LOG_ODDS = 12.0
"""Log odds beyond this, a probability of 6 in a million, are in the outermost bins."""
CONFIDENCE_BINS = 15
"""Even bins of confidence, as in Guo et al., On Calibration of Modern Neural Networks, 2017."""

_MAX_CURVES, _MAX_POINTS = 10, 64

Kind = Literal["multiclass", "binary", "multilabel"]


def build_family(metrics: Sequence[str], spec: OutputSpec) -> MetricFamily:
    """Return the family that computes `metrics`.

    Raises:
        TrainyardError: The model's output is not one of classes or labels.
    """
    if spec.label and spec.output == spec.label and len(spec.label) == 1:
        return Classification(tuple(metrics), "multilabel", spec.label[0], spec.link)
    if spec.classes is None:
        raise TrainyardError(
            f"metric {metrics[0]!r} is for classification, but the recipe does not set the number of classes. "
            "Set classes= in the recipe, or use metrics of regression: mae, mse, rmse, r2."
        )
    if not spec.label and spec.output in ((), (1,)):
        return Classification(tuple(metrics), "binary", 1, spec.link)
    if not spec.label and len(spec.output) == 1 and spec.output[0] == spec.classes:
        return Classification(tuple(metrics), "multiclass", spec.output[0], spec.link)
    raise TrainyardError(
        f"metric {metrics[0]!r} is for classification: the network must return one number for each of the recipe's "
        f"classes ({spec.classes}), a single number for a binary model, or one for each label; a row of its output has "
        f"shape {list(spec.output)}, one of the label {list(spec.label)}."
    )


@dataclass(frozen=True)
class Classification:
    """The family of classification metrics, of `count` classes or labels; a binary model has one label."""

    metrics: tuple[str, ...]
    kind: Kind
    count: int
    link: Link
    by_row: bool = True

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the statistics that the metrics need."""
        table = (self.count, self.count) if self.kind == "multiclass" else (self.count, 2, 2)
        shapes = {
            "confusion": table,
            "scores": (self.count, 2, BINS),
            "confidence": (CONFIDENCE_BINS, 3),
            "negative_log_likelihood": (2,),
        }
        needed = {METRICS[metric][0] for metric in self.metrics}
        return {name: shape for name, shape in shapes.items() if name in needed}

    def contribute(self, rows: ScoredRows) -> Iterator[Contribution]:
        """Yield what the rows add to each statistic."""
        probability, truth, numbers = self._compute_probabilities(rows), self._get_truth(rows), number_rows(rows)
        guess = probability.argmax(1) if self.kind == "multiclass" else (probability > 0.5).astype(np.int64)
        ones = np.ones_like(probability)
        for statistic in self.shapes:
            if statistic == "confusion" and self.kind == "multiclass":
                yield Contribution(statistic, numbers, (truth * self.count + guess)[:, None], ones[:, :1])
            elif statistic == "confusion":
                yield Contribution(statistic, numbers, np.arange(self.count) * 4 + truth * 2 + guess, ones)
            elif statistic == "scores":
                yield Contribution(statistic, numbers, self._find_score_cells(probability, truth), ones)
            elif statistic == "confidence":
                yield self._contribute_confidences(numbers, probability, truth, guess)
            else:
                likelihoods = self._compute_negative_log_likelihoods(probability, truth)
                both = np.stack([likelihoods, np.ones(len(numbers))], axis=1)
                yield Contribution(statistic, numbers, np.broadcast_to(np.arange(2), both.shape), both)

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        """Return the metrics by name, each (resamples, ...)."""
        return {name: METRICS[name][1](sums[METRICS[name][0]]) for name in self.metrics}

    def compute_losses(self, rows: ScoredRows) -> Floats:
        """Return the negative log-likelihood of each row."""
        return self._compute_negative_log_likelihoods(self._compute_probabilities(rows), self._get_truth(rows))

    def compute_curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        """Return the ROC curves and the calibration curve, as far as their sums are there.

        Points of a ROC curve are (false positive rate, true positive rate), for up to 10 classes. Points of the
        calibration curve are (mean confidence, accuracy).
        """
        curves = {}
        if "scores" in sums and self.count <= _MAX_CURVES:
            for number, (negatives, positives) in enumerate(sums["scores"][0]):
                if negatives.sum() and positives.sum():
                    name = "ROC" if self.count == 1 else f"ROC of {number}"
                    curves[name] = _reduce_points([[0.0, 0.0], *_compute_rates(negatives, positives)])
        if "confidence" in sums:
            rows, confidence, correct = sums["confidence"][0].T
            used = rows > 0
            curves["calibration"] = np.stack([confidence[used], correct[used]] / rows[used], axis=1).tolist()
        return curves

    def _compute_probabilities(self, rows: ScoredRows) -> Floats:
        """Return probabilities, (rows, classes or labels)."""
        output = rows.output.reshape(-1, self.count).astype(np.float64)
        if self.link == "softmax":
            exponentials = np.exp(output - output.max(axis=1, keepdims=True))
            return exponentials / exponentials.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]
        if self.link == "sigmoid":
            return 1 / (1 + np.exp(-output))
        return np.exp(output) if self.link == "exp" else output

    def _get_truth(self, rows: ScoredRows) -> Integers:
        """Return the true classes (rows,), or labels (rows, labels), checked."""
        top = self.count - 1 if self.kind == "multiclass" else 1
        is_valid = (rows.truth >= 0) & (rows.truth <= top) & (rows.truth == np.floor(rows.truth))
        if not is_valid.all():
            raise TrainyardError(
                f"labels must be whole numbers from 0 to {top} for metrics of classification, but one is "
                f"{rows.truth[~is_valid][0]}. Renumber them in prepare, or use metrics of regression."
            )
        truth = rows.truth.astype(np.int64)
        return truth if self.kind == "multiclass" else truth.reshape(-1, self.count)

    def _find_score_cells(self, probability: Floats, truth: Integers) -> Integers:
        """Return the cell of each row's score of each class or label, (rows, classes or labels)."""
        with np.errstate(divide="ignore"):
            odds = np.clip(np.log(probability) - np.log1p(-probability), -MAX_LOG_ODDS, MAX_LOG_ODDS)
        bins = np.minimum(((odds / MAX_LOG_ODDS + 1) / 2 * BINS).astype(np.int64), BINS - 1)
        classes = np.arange(self.count)
        positive = truth[:, None] == classes if self.kind == "multiclass" else truth
        return (classes * 2 + positive) * BINS + bins  # type: ignore[no-any-return]

    def _contribute_confidences(
        self, numbers: Integers, probability: Floats, truth: Integers, guess: Integers
    ) -> Contribution:
        """Return, for each bin, the number of predictions, the sum of confidences, and the number correct."""
        if self.kind == "multiclass":
            confidence, correct = probability.max(axis=1, keepdims=True), (guess == truth)[:, None]
        else:
            confidence, correct = probability, truth.astype(bool)
        bins = np.minimum((confidence * CONFIDENCE_BINS).astype(np.int64), CONFIDENCE_BINS - 1)
        cells = bins[:, :, None] * 3 + np.arange(3)
        values = np.stack([np.ones_like(confidence), confidence, correct.astype(np.float64)], axis=2)
        return Contribution("confidence", numbers, cells.reshape(len(numbers), -1), values.reshape(len(numbers), -1))

    def _compute_negative_log_likelihoods(self, probability: Floats, truth: Integers) -> Floats:
        """Return the negative logarithm of the probability of the truth, (rows,); the mean over labels."""
        smallest = np.finfo(np.float64).tiny
        if self.kind == "multiclass":
            likelihood = np.take_along_axis(probability, truth[:, None], axis=1)
        else:
            likelihood = np.where(truth == 1, probability, 1 - probability)
        return -np.log(np.maximum(likelihood, smallest)).mean(axis=1)  # type: ignore[no-any-return]


def _compute_rates(negatives: Floats, positives: Floats) -> list[list[float]]:
    """Return points (false positive rate, true positive rate), from the highest threshold to the lowest."""
    rates = [np.cumsum(part[::-1]) / part.sum() for part in (negatives, positives)]
    return np.stack(rates, axis=1).tolist()  # type: ignore[no-any-return]


def _reduce_points(points: list[list[float]]) -> list[list[float]]:
    """Return a limited number of distinct points, the first and the last among them."""
    distinct = [point for number, point in enumerate(points) if number == 0 or point != points[number - 1]]
    selected = np.unique(np.linspace(0, len(distinct) - 1, min(len(distinct), _MAX_POINTS)).astype(int))
    return [distinct[number] for number in selected]


def _count_outcomes(table: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return true and false positives, false and true negatives, each (resamples, classes or labels)."""
    if table.ndim == 4:
        return table[..., 1, 1], table[..., 0, 1], table[..., 1, 0], table[..., 0, 0]
    true_positive = np.diagonal(table, axis1=1, axis2=2)
    false_positive, false_negative = table.sum(axis=1) - true_positive, table.sum(axis=2) - true_positive
    total = table.sum(axis=(1, 2))[:, None]
    return true_positive, false_positive, false_negative, total - true_positive - false_positive - false_negative


def _accuracy(table: Floats) -> Floats:
    if table.ndim == 3:
        return divide(np.trace(table, axis1=1, axis2=2), table.sum(axis=(1, 2)))
    tp, fp, fn, tn = _count_outcomes(table)
    return divide(tp + tn, tp + fp + fn + tn).mean(axis=1)  # type: ignore[no-any-return]


def _average(values: Floats, occurs: NDArray[np.bool_]) -> Floats:
    """Return the mean over classes or labels that occur; the value itself for a binary model."""
    if values.shape[1] == 1:
        return values[:, 0]
    return divide(np.where(occurs, values, 0).sum(axis=1), occurs.sum(axis=1))


def _precision(table: Floats) -> Floats:
    tp, fp, fn, _ = _count_outcomes(table)
    return _average(divide(tp, tp + fp, empty=0), tp + fp + fn > 0)


def _recall(table: Floats) -> Floats:
    tp, fp, fn, _ = _count_outcomes(table)
    return _average(divide(tp, tp + fn, empty=0), tp + fp + fn > 0)


def _f1(table: Floats) -> Floats:
    tp, fp, fn, _ = _count_outcomes(table)
    return _average(divide(2 * tp, 2 * tp + fp + fn, empty=0), tp + fp + fn > 0)


def _auroc(scores: Floats) -> Floats:
    """Return the probability that a positive has a higher score than a negative; equal scores count half."""
    negatives, positives = scores[..., 0, :], scores[..., 1, :]
    below = np.cumsum(negatives, axis=-1) - negatives
    pairs = positives.sum(axis=-1) * negatives.sum(axis=-1)
    areas = divide((positives * (below + negatives / 2)).sum(axis=-1), pairs)
    return _average(areas, ~np.isnan(areas))


def _average_precision(scores: Floats) -> Floats:
    """Return the mean precision at each positive, as scikit-learn does.

    Within a bin, positives are assumed to be spread evenly among its negatives.
    """
    negatives, positives = scores[..., 0, ::-1], scores[..., 1, ::-1]
    correct = np.cumsum(positives, axis=-1) - (positives - 1) / 2
    precision = divide(correct, correct + np.cumsum(negatives, axis=-1) - negatives / 2, empty=0)
    areas = divide((precision * positives).sum(axis=-1), positives.sum(axis=-1))
    return _average(areas, ~np.isnan(areas))


def _log_loss(negative_log_likelihood: Floats) -> Floats:
    return divide(negative_log_likelihood[:, 0], negative_log_likelihood[:, 1])


def _calibration_error(confidence: Floats) -> Floats:
    """Return the mean distance of confidence and accuracy over bins, weighted by their rows."""
    distances = np.abs(confidence[..., 1] - confidence[..., 2])
    return divide(distances.sum(axis=1), confidence[..., 0].sum(axis=1))


def _confusion_matrix(table: Floats) -> NDArray[Any]:
    return (table[:, 0] if table.ndim == 4 and table.shape[1] == 1 else table).round().astype(np.int64)


METRICS: dict[str, tuple[str, Callable[[Floats], NDArray[Any]]]] = {
    "accuracy": ("confusion", _accuracy),
    "precision": ("confusion", _precision),
    "recall": ("confusion", _recall),
    "f1": ("confusion", _f1),
    "confusion_matrix": ("confusion", _confusion_matrix),
    "auroc": ("scores", _auroc),
    "average_precision": ("scores", _average_precision),
    "log_loss": ("negative_log_likelihood", _log_loss),
    "calibration_error": ("confidence", _calibration_error),
}
"""The statistic that each metric needs, and the function that computes it."""
