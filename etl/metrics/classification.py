"""Metrics of classification: of one class among several, of yes or no, or of several labels that may each apply.

With several classes or labels precision, recall, F1 and the areas are means over those that occur; of yes or no they
are those of yes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import Family, Floats, Integers, Link, Scored, Sums, Tally, Task, every_row, ratio

BINS = 256
"""Of scores, even in the log odds: near 0 and 1 scores are told apart as well as in the middle."""
WIDEST = 12.0
"""Log odds beyond this, a chance of 6 in a million, are not told apart."""
CONFIDENCES = 15
"""Even bins of confidence, as in Guo et al., On Calibration of Modern Neural Networks, 2017."""

_DRAWN, _POINTS = 10, 64

Kind = Literal["classes", "yes or no", "labels"]


def family(asked: Sequence[str], task: Task) -> Family:
    """Raises TrainyardError when the model's output is none of classes or labels."""
    if task.label and task.output == task.label and len(task.label) == 1:
        return Classification(tuple(asked), "labels", task.label[0], task.link)
    if task.classes is None:
        raise TrainyardError(
            f"metric {asked[0]!r} is one of classification, and the recipe does not say how many classes there are. "
            "Write classes= in the recipe, or choose a metric of regression: mae, mse, rmse, r2."
        )
    if not task.label and task.output in ((), (1,)):
        return Classification(tuple(asked), "yes or no", 1, task.link)
    if not task.label and len(task.output) == 1 and task.output[0] == task.classes:
        return Classification(tuple(asked), "classes", task.output[0], task.link)
    raise TrainyardError(
        f"metric {asked[0]!r} is one of classification: the network must return one number for each of the recipe's "
        f"classes ({task.classes}), one in all for yes or no, or one for each label; a row of its output has shape "
        f"{list(task.output)}, one of the label {list(task.label)}."
    )


@dataclass(frozen=True)
class Classification:
    """`count` classes, or labels; yes or no is one label."""

    asked: tuple[str, ...]
    kind: Kind
    count: int
    link: Link
    by_row: bool = True

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        table = (self.count, self.count) if self.kind == "classes" else (self.count, 2, 2)
        every = {
            "confusion": table,
            "scores": (self.count, 2, BINS),
            "confidence": (CONFIDENCES, 3),
            "negative_log_likelihood": (2,),
        }
        return {name: shape for name, shape in every.items() if any(METRICS[a][0] == name for a in self.asked)}

    def tallies(self, scored: Scored) -> Iterator[Tally]:
        probability, truth, rows = self._probabilities(scored), self._truth(scored), every_row(scored)
        guess = probability.argmax(1) if self.kind == "classes" else (probability > 0.5).astype(np.int64)
        ones = np.ones_like(probability)
        for statistic in self.shapes:
            if statistic == "confusion" and self.kind == "classes":
                yield Tally(statistic, rows, (truth * self.count + guess)[:, None], ones[:, :1])
            elif statistic == "confusion":
                yield Tally(statistic, rows, np.arange(self.count) * 4 + truth * 2 + guess, ones)
            elif statistic == "scores":
                yield Tally(statistic, rows, self._score_cells(probability, truth), ones)
            elif statistic == "confidence":
                yield self._confidences(rows, probability, truth, guess)
            else:
                both = np.stack([self._negative_log_likelihood(probability, truth), np.ones(len(rows))], axis=1)
                yield Tally(statistic, rows, np.broadcast_to(np.arange(2), both.shape), both)

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        return {name: METRICS[name][1](sums[METRICS[name][0]]) for name in self.asked}

    def losses(self, scored: Scored) -> Floats:
        return self._negative_log_likelihood(self._probabilities(scored), self._truth(scored))

    def curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        """ROC of up to 10 classes as (false, true positive rate), and calibration as (confidence, how often right)."""
        found = {}
        if "scores" in sums and self.count <= _DRAWN:
            for number, (no, yes) in enumerate(sums["scores"][0]):
                if no.sum() and yes.sum():
                    name = "ROC" if self.count == 1 else f"ROC of {number}"
                    found[name] = _thinned([[0.0, 0.0], *_rates(no, yes)])
        if "confidence" in sums:
            rows, confidence, right = sums["confidence"][0].T
            held = rows > 0
            found["calibration"] = np.stack([confidence[held], right[held]] / rows[held], axis=1).tolist()
        return found

    def _probabilities(self, scored: Scored) -> Floats:
        """(rows, classes or labels)"""
        output = scored.output.reshape(-1, self.count).astype(np.float64)
        if self.link == "softmax":
            raised = np.exp(output - output.max(axis=1, keepdims=True))
            return raised / raised.sum(axis=1, keepdims=True)  # type: ignore[no-any-return]
        if self.link == "sigmoid":
            return 1 / (1 + np.exp(-output))
        return np.exp(output) if self.link == "exp" else output

    def _truth(self, scored: Scored) -> Integers:
        """(rows,) of classes, (rows, labels) of labels. Raises TrainyardError for what is none."""
        truth = scored.truth.astype(np.int64)
        top = self.count - 1 if self.kind == "classes" else 1
        if len(truth) and (truth.min() < 0 or truth.max() > top):
            raise TrainyardError(
                f"labels must be 0 to {top} for metrics of classification, and there are {truth.min()} to "
                f"{truth.max()}. Renumber them in prepare.py, or choose metrics of regression."
            )
        return truth if self.kind == "classes" else truth.reshape(-1, self.count)

    def _score_cells(self, probability: Floats, truth: Integers) -> Integers:
        with np.errstate(divide="ignore"):
            odds = np.clip(np.log(probability) - np.log1p(-probability), -WIDEST, WIDEST)
        bins = np.minimum(((odds / WIDEST + 1) / 2 * BINS).astype(np.int64), BINS - 1)
        each = np.arange(self.count)
        yes = truth[:, None] == each if self.kind == "classes" else truth
        return (each * 2 + yes) * BINS + bins  # type: ignore[no-any-return]

    def _confidences(self, rows: Integers, probability: Floats, truth: Integers, guess: Integers) -> Tally:
        """For each bin rows, the sum of confidences, and how often they were right."""
        if self.kind == "classes":
            confidence, right = probability.max(axis=1, keepdims=True), (guess == truth)[:, None]
        else:
            confidence, right = probability, truth.astype(bool)
        bins = np.minimum((confidence * CONFIDENCES).astype(np.int64), CONFIDENCES - 1)
        cells = bins[:, :, None] * 3 + np.arange(3)
        values = np.stack([np.ones_like(confidence), confidence, right.astype(np.float64)], axis=2)
        return Tally("confidence", rows, cells.reshape(len(rows), -1), values.reshape(len(rows), -1))

    def _negative_log_likelihood(self, probability: Floats, truth: Integers) -> Floats:
        """Minus the logarithm of the chance that was given to the truth; of labels their mean."""
        least = np.finfo(np.float64).tiny
        if self.kind == "classes":
            of_truth = np.take_along_axis(probability, truth[:, None], axis=1)
        else:
            of_truth = np.where(truth == 1, probability, 1 - probability)
        return -np.log(np.maximum(of_truth, least)).mean(axis=1)  # type: ignore[no-any-return]


def _rates(no: Floats, yes: Floats) -> list[list[float]]:
    """Points (false positive rate, true positive rate), from the highest threshold to the lowest."""
    rates = [np.cumsum(part[::-1]) / part.sum() for part in (no, yes)]
    return np.stack(rates, axis=1).tolist()  # type: ignore[no-any-return]


def _thinned(points: list[list[float]]) -> list[list[float]]:
    """No more than some of the points, the first and last among them."""
    distinct = [point for number, point in enumerate(points) if number == 0 or point != points[number - 1]]
    chosen = np.unique(np.linspace(0, len(distinct) - 1, min(len(distinct), _POINTS)).astype(int))
    return [distinct[number] for number in chosen]


def _problems(table: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """True and false positives, false and true negatives, each (resamples, classes or labels)."""
    if table.ndim == 4:
        return table[..., 1, 1], table[..., 0, 1], table[..., 1, 0], table[..., 0, 0]
    right = np.diagonal(table, axis1=1, axis2=2)
    wrong, missed = table.sum(axis=1) - right, table.sum(axis=2) - right
    return right, wrong, missed, table.sum(axis=(1, 2))[:, None] - right - wrong - missed


def _accuracy(table: Floats) -> Floats:
    if table.ndim == 3:
        return ratio(np.trace(table, axis1=1, axis2=2), table.sum(axis=(1, 2)))
    right, wrong, missed, rest = _problems(table)
    return ratio(right + rest, right + wrong + missed + rest).mean(axis=1)  # type: ignore[no-any-return]


def _mean(values: Floats, occurs: NDArray[np.bool_]) -> Floats:
    """The mean over classes or labels that occur; of yes or no there is but one."""
    if values.shape[1] == 1:
        return values[:, 0]
    return ratio(np.where(occurs, values, 0).sum(axis=1), occurs.sum(axis=1))


def _precision(table: Floats) -> Floats:
    right, wrong, missed, _ = _problems(table)
    return _mean(ratio(right, right + wrong, empty=0), right + wrong + missed > 0)


def _recall(table: Floats) -> Floats:
    right, wrong, missed, _ = _problems(table)
    return _mean(ratio(right, right + missed, empty=0), right + wrong + missed > 0)


def _f1(table: Floats) -> Floats:
    right, wrong, missed, _ = _problems(table)
    return _mean(ratio(2 * right, 2 * right + wrong + missed, empty=0), right + wrong + missed > 0)


def _auroc(scores: Floats) -> Floats:
    """The chance that a positive has a higher score than a negative; equal ones count half."""
    no, yes = scores[..., 0, :], scores[..., 1, :]
    below = np.cumsum(no, axis=-1) - no
    areas = ratio((yes * (below + no / 2)).sum(axis=-1), yes.sum(axis=-1) * no.sum(axis=-1))
    return _mean(areas, ~np.isnan(areas))


def _average_precision(scores: Floats) -> Floats:
    """The mean precision at each positive, as scikit-learn's; those of one bin are mixed evenly with its negatives."""
    no, yes = scores[..., 0, ::-1], scores[..., 1, ::-1]
    right = np.cumsum(yes, axis=-1) - (yes - 1) / 2
    precision = ratio(right, right + np.cumsum(no, axis=-1) - no / 2, empty=0)
    areas = ratio((precision * yes).sum(axis=-1), yes.sum(axis=-1))
    return _mean(areas, ~np.isnan(areas))


def _log_loss(negative_log_likelihood: Floats) -> Floats:
    return ratio(negative_log_likelihood[:, 0], negative_log_likelihood[:, 1])


def _calibration_error(confidence: Floats) -> Floats:
    """The mean distance of confidence from how often it was right, over bins by their rows."""
    return ratio(np.abs(confidence[..., 1] - confidence[..., 2]).sum(axis=1), confidence[..., 0].sum(axis=1))


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
"""Which sums each metric needs, and how it follows from them."""
