"""Metrics of classification: multiclass, binary and multilabel.

With several classes or labels, precision, recall, F1 and the areas are means over those that occur (macro average); for
a binary model they are those of the positive class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainyard.errors import TrainyardError
from trainyard.etl.metrics.bins import (
    BINS,
    choose_edges,
    compute_auroc,
    compute_average_precision,
    find_bins,
    find_tied_bins,
    merge_bins,
)
from trainyard.etl.metrics.family import (
    Contribution,
    Floats,
    Integers,
    Link,
    MetricFamily,
    OutputSpec,
    ScoredRows,
    Sums,
    average,
    divide,
    number_rows,
)

CONFIDENCE_BINS = 15
"""Even bins of confidence, as in Guo et al., On Calibration of Modern Neural Networks, 2017."""

MATRIX = "confusion"
"""The statistic of the confusion matrix, which has no interval. Of many classes it is too large to be resampled."""

SCORES = "scores"
"""The statistic of the areas under curves: rows by class or label, truth and bin."""

_MAX_CURVES, _MAX_POINTS = 10, 64

Trials = tuple[Floats, Floats]
"""Successes and trials of the proportions (classes or labels,) whose mean a metric is."""

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
        return Classification(tuple(metrics), "multiclass", spec.output[0], spec.link, spec.ignored)
    raise TrainyardError(
        f"metric {metrics[0]!r} is for classification: the network must return one number for each of the recipe's "
        f"classes ({spec.classes}), a single number for a binary model, or one for each label; a row of its output has "
        f"shape {list(spec.output)}, one of the label {list(spec.label)}."
    )


def needs_edges(families: Sequence[MetricFamily]) -> bool:
    """Return whether one of the metrics is an area under a curve, whose bins depend on the scores."""
    return any(isinstance(family, Classification) and SCORES in family.shapes for family in families)


def set_edges(families: Sequence[MetricFamily], output: NDArray[Any]) -> tuple[MetricFamily, ...]:
    """Return the families with edges of bins at quantiles of the scores in some `output` (rows, ...).

    All tasks need the same edges. Those of each class lie where its scores are, however close together these are.
    """
    return tuple(family.set_edges(output) if isinstance(family, Classification) else family for family in families)


@dataclass(frozen=True)
class Classification:
    """The family of classification metrics, of `count` classes or labels; a binary model has one label.

    Rows whose class is `ignored` are left out, and have no loss. `edges` (classes or labels, edges) split the bins of
    scores; all scores in a bin that is `tied` (classes or labels, bins) are equal.
    """

    metrics: tuple[str, ...]
    kind: Kind
    count: int
    link: Link
    ignored: int | None = None
    by_row: bool = True
    edges: Floats | None = field(default=None, compare=False)
    tied: NDArray[np.bool_] | None = field(default=None, compare=False)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the statistics that the metrics need."""
        tables = (self.count, 2, 2)
        shapes = {
            "outcomes": (self.count, 3) if self.kind == "multiclass" else tables,
            MATRIX: (self.count, self.count) if self.kind == "multiclass" else tables,
            SCORES: (self.count, 2, BINS),
            "confidence": (CONFIDENCE_BINS, 3),
            "negative_log_likelihood": (2,),
        }
        needed = {METRICS[metric][0] for metric in self.metrics}
        return {name: shape for name, shape in shapes.items() if name in needed}

    def contribute(self, rows: ScoredRows) -> Iterator[Contribution]:
        """Yield what the rows add to each statistic."""
        numbers = self._find_counted(rows)
        rows = rows.select(numbers)
        probability, truth = self._compute_probabilities(rows), self._get_truth(rows)
        guess = probability.argmax(1) if self.kind == "multiclass" else (probability > 0.5).astype(np.int64)
        ones = np.ones_like(probability)
        for statistic in self.shapes:
            if statistic == "outcomes" and self.kind == "multiclass":
                cells = np.stack([truth * 3, guess * 3 + 1, truth * 3 + 2], axis=1)
                values = np.stack([ones[:, 0], ones[:, 0], guess == truth], axis=1)
                yield Contribution(statistic, numbers, cells, values)
            elif statistic == MATRIX and self.kind == "multiclass":
                yield Contribution(statistic, numbers, (truth * self.count + guess)[:, None], ones[:, :1])
            elif statistic in ("outcomes", MATRIX):
                yield Contribution(statistic, numbers, np.arange(self.count) * 4 + truth * 2 + guess, ones)
            elif statistic == SCORES:
                yield Contribution(statistic, numbers, self._find_score_cells(rows, probability, truth), ones)
            elif statistic == "confidence":
                yield self._contribute_confidences(numbers, probability, truth, guess)
            else:
                likelihoods = self._compute_negative_log_likelihoods(rows, truth)
                both = np.stack([likelihoods, np.ones(len(numbers))], axis=1)
                yield Contribution(statistic, numbers, np.broadcast_to(np.arange(2), both.shape), both)

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        """Return the metrics whose statistic is in `sums` by name, each (resamples, ...)."""
        needed = {name: METRICS[name] for name in self.metrics}
        metrics = {name: compute(sums[statistic]) for name, (statistic, compute) in needed.items() if statistic in sums}
        if SCORES in sums and "average_precision" in self.metrics:
            metrics["average_precision"] = compute_average_precision(sums[SCORES], self.tied)
        return metrics

    def set_edges(self, output: NDArray[Any]) -> Classification:
        """Return this family with edges of bins that suit the scores in some output (rows, ...)."""
        rows = ScoredRows(output, np.zeros(len(output)))
        edges = choose_edges(self._compute_log_odds(rows, self._compute_probabilities(rows)))
        return replace(self, edges=edges, tied=find_tied_bins(edges))

    def split_scores(self, scores: Floats) -> Iterator[tuple[Classification, Floats]]:
        """Yield the family of each class or label alone, with its `scores` in as few bins as have the same areas.

        Args:
            scores: The sums of the scores, (buckets, classes or labels, truth, bins).
        """
        for number in range(self.count):
            merged, starts = merge_bins(scores[:, number : number + 1])
            tied = None if self.tied is None else self.tied[number : number + 1, starts]
            yield replace(self, kind="binary", count=1, edges=None, tied=tied), merged

    def compute_losses(self, rows: ScoredRows) -> Floats:
        """Return the negative log-likelihood of each row, 0 for rows that are left out."""
        losses, numbers = np.zeros(len(rows.truth)), self._find_counted(rows)
        rows = rows.select(numbers)
        losses[numbers] = self._compute_negative_log_likelihoods(rows, self._get_truth(rows))
        return losses

    def compute_curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        """Return the ROC curves and the calibration curve, as far as their sums are there.

        Points of a ROC curve are (false positive rate, true positive rate), for up to 10 classes. Points of the
        calibration curve are (mean confidence, accuracy).
        """
        curves = {}
        if SCORES in sums and self.count <= _MAX_CURVES:
            for number, (negatives, positives) in enumerate(sums[SCORES][0]):
                if negatives.sum() and positives.sum():
                    name = "ROC" if self.count == 1 else f"ROC of {number}"
                    curves[name] = _reduce_points([[0.0, 0.0], *_compute_rates(negatives, positives)])
        if "confidence" in sums:
            rows, confidence, correct = sums["confidence"][0].T
            used = rows > 0
            curves["calibration"] = np.stack([confidence[used], correct[used]] / rows[used], axis=1).tolist()
        return curves

    def _find_counted(self, rows: ScoredRows) -> Integers:
        """Return the numbers of the rows that count."""
        return number_rows(rows) if self.ignored is None else np.flatnonzero(rows.truth != self.ignored)

    def _get_output(self, rows: ScoredRows) -> Floats:
        """Return the output in float64, (rows, classes or labels)."""
        return rows.output.reshape(-1, self.count).astype(np.float64)

    def _compute_probabilities(self, rows: ScoredRows) -> Floats:
        """Return probabilities, (rows, classes or labels)."""
        output = self._get_output(rows)
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

    def _compute_log_odds(self, rows: ScoredRows, probability: Floats) -> Floats:
        """Return the log odds of each class or label, also where `probability` is 1 to the last digit."""
        output = self._get_output(rows)
        if self.link == "sigmoid":
            return output
        with np.errstate(divide="ignore"):
            if self.link == "exp":
                return output - np.log(-np.expm1(np.minimum(output, 0)))
            odds = np.log(probability) - np.log1p(-np.minimum(probability, 1))
        if self.link == "softmax":
            top = output.argmax(axis=1)[:, None]
            others = output.copy()
            np.put_along_axis(others, top, -np.inf, axis=1)
            of_top = np.take_along_axis(output, top, axis=1) - np.logaddexp.reduce(others, axis=1, keepdims=True)
            np.put_along_axis(odds, top, of_top, axis=1)
        return odds

    def _find_score_cells(self, rows: ScoredRows, probability: Floats, truth: Integers) -> Integers:
        """Return the cell of each row's score of each class or label, (rows, classes or labels)."""
        score_bins = find_bins(self._compute_log_odds(rows, probability), self.edges)
        classes = np.arange(self.count)
        positive = truth[:, None] == classes if self.kind == "multiclass" else truth
        return (classes * 2 + positive) * BINS + score_bins

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
        shape = len(numbers), 3 * bins.shape[1]
        return Contribution("confidence", numbers, cells.reshape(shape), values.reshape(shape))

    def _compute_negative_log_likelihoods(self, rows: ScoredRows, truth: Integers) -> Floats:
        """Return the negative logarithm of the probability of the truth, (rows,); the mean over labels.

        Logits and logarithms are not turned into probabilities, which are 0 and 1 where they are large.
        """
        output = self._get_output(rows)
        if self.link == "sigmoid":
            return np.logaddexp(0, np.where(truth == 1, -output, output)).mean(axis=1)  # type: ignore[no-any-return]
        if self.kind == "multiclass" and self.link != "none":
            of_truth = np.take_along_axis(output, truth[:, None], axis=1)[:, 0]
            return (_logsumexp(output) if self.link == "softmax" else 0) - of_truth
        probability = self._compute_probabilities(rows)
        if self.kind == "multiclass":
            likelihood = np.take_along_axis(probability, truth[:, None], axis=1)
        else:
            likelihood = np.where(truth == 1, probability, 1 - probability)
        return -np.log(np.maximum(likelihood, np.finfo(np.float64).tiny)).mean(axis=1)  # type: ignore[no-any-return]


def _logsumexp(output: Floats) -> Floats:
    """Return the logarithm of the sum of exponentials of each row, (rows,)."""
    top = output.max(axis=1)
    return top + np.log(np.exp(output - top[:, None]).sum(axis=1))  # type: ignore[no-any-return]


def _compute_rates(negatives: Floats, positives: Floats) -> list[list[float]]:
    """Return points (false positive rate, true positive rate), from the highest threshold to the lowest."""
    rates = [np.cumsum(part[::-1]) / part.sum() for part in (negatives, positives)]
    return np.stack(rates, axis=1).tolist()  # type: ignore[no-any-return]


def _reduce_points(points: list[list[float]]) -> list[list[float]]:
    """Return a limited number of distinct points, the first and the last among them."""
    distinct = [point for number, point in enumerate(points) if number == 0 or point != points[number - 1]]
    selected = np.unique(np.linspace(0, len(distinct) - 1, min(len(distinct), _MAX_POINTS)).astype(int))
    return [distinct[number] for number in selected]


def _count_outcomes(outcomes: Floats) -> tuple[Floats, Floats, Floats]:
    """Return true and false positives, and false negatives, each (resamples, classes or labels).

    Of multiclass models, outcomes are the rows of each class, those predicted as it, and those of both.
    """
    if outcomes.ndim == 4:
        return outcomes[..., 1, 1], outcomes[..., 0, 1], outcomes[..., 1, 0]
    true_positive = outcomes[..., 2]
    return true_positive, outcomes[..., 1] - true_positive, outcomes[..., 0] - true_positive


def _accuracy(outcomes: Floats) -> Floats:
    if outcomes.ndim == 3:
        return divide(outcomes[..., 2].sum(axis=1), outcomes[..., 0].sum(axis=1))
    correct = np.trace(outcomes, axis1=2, axis2=3)
    return divide(correct, outcomes.sum(axis=(2, 3))).mean(axis=1)  # type: ignore[no-any-return]


def _average_proportion(outcomes: Floats, part: Floats, total: Floats) -> Floats:
    """Return the mean of proportions over classes or labels that occur; of a binary model it has a value if rows do."""
    values = divide(part, total, empty=0)
    if values.shape[1] == 1:
        return np.where(outcomes.sum(axis=(2, 3)) > 0, values, np.nan)[:, 0]
    tp, fp, fn = _count_outcomes(outcomes)
    return average(values, tp + fp + fn > 0)


def _precision(outcomes: Floats) -> Floats:
    tp, fp, _ = _count_outcomes(outcomes)
    return _average_proportion(outcomes, tp, tp + fp)


def _recall(outcomes: Floats) -> Floats:
    tp, _, fn = _count_outcomes(outcomes)
    return _average_proportion(outcomes, tp, tp + fn)


def _f1(outcomes: Floats) -> Floats:
    tp, fp, fn = _count_outcomes(outcomes)
    return _average_proportion(outcomes, 2 * tp, 2 * tp + fp + fn)


def _log_loss(negative_log_likelihood: Floats) -> Floats:
    return divide(negative_log_likelihood[:, 0], negative_log_likelihood[:, 1])


def _calibration_error(confidence: Floats) -> Floats:
    """Return the mean distance of confidence and accuracy over bins, weighted by their rows."""
    distances = np.abs(confidence[..., 1] - confidence[..., 2])
    return divide(distances.sum(axis=1), confidence[..., 0].sum(axis=1))


def _confusion_matrix(table: Floats) -> NDArray[Any]:
    return (table[:, 0] if table.ndim == 4 and table.shape[1] == 1 else table).round().astype(np.int64)


def count_trials(family: MetricFamily, sums: Sums) -> dict[str, Trials]:
    """Return the trials of each metric that is a proportion of rows; `sums` is one resample."""
    if not isinstance(family, Classification) or "outcomes" not in sums:
        return {}
    outcomes = sums["outcomes"]
    tp, fp, fn = (values[0] for values in _count_outcomes(outcomes))
    if outcomes.ndim == 3:
        accuracy = outcomes[0, :, 2].sum(keepdims=True), outcomes[0, :, 0].sum(keepdims=True)
    else:
        accuracy = np.trace(outcomes[0], axis1=1, axis2=2), outcomes[0].sum(axis=(1, 2))
    occurs = tp + fp + fn > 0 if len(tp) > 1 else np.ones(1, bool)
    trials = {
        "accuracy": accuracy,
        "precision": (tp[occurs], (tp + fp)[occurs]),
        "recall": (tp[occurs], (tp + fn)[occurs]),
    }
    return {name: counts for name, counts in trials.items() if name in family.metrics}


METRICS: dict[str, tuple[str, Callable[[Floats], NDArray[Any]]]] = {
    "accuracy": ("outcomes", _accuracy),
    "precision": ("outcomes", _precision),
    "recall": ("outcomes", _recall),
    "f1": ("outcomes", _f1),
    "confusion_matrix": (MATRIX, _confusion_matrix),
    "auroc": (SCORES, compute_auroc),
    "average_precision": (SCORES, compute_average_precision),
    "log_loss": ("negative_log_likelihood", _log_loss),
    "calibration_error": ("confidence", _calibration_error),
}
"""The statistic that each metric needs, and the function that computes it."""
