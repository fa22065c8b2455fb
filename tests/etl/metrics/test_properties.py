"""Every metric equals that of scikit-learn, in all rows and in each slice, however they are divided into tasks.

Classes are rare or the only one, scores are equal, rows are few, have no label, or one that the loss ignores.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics as reference
from torch import tensor
from torchmetrics.functional import classification as of_torch

from tests.etl.metrics.model_metrics import compute_metrics
from trainyard.etl.metrics.family import OutputSpec
from trainyard.schemas.specs import metrics as names

pytestmark = pytest.mark.slow

Array = NDArray[Any]
STEP = 0.5
"""Between scores that differ: each is in a bin of its own, so that no area is approximated."""
TOLERANCE = 1e-6
"""torchmetrics computes calibration errors in float32."""
SLICES = ("a", "b", "no label")
SPECS = {
    "binary": OutputSpec((), (), 2, "sigmoid"),
    "multiclass": OutputSpec((4,), (), 4, "softmax", ignored=-100),
    "multilabel": OutputSpec((3,), (3,), None, "sigmoid"),
    "number": OutputSpec((), (), None, "none"),
    "numbers": OutputSpec((3,), (3,), None, "none"),
}
OF_KIND = {kind: names.REGRESSION if kind.startswith("number") else names.CLASSIFICATION for kind in SPECS}
rows_of_any_kind = st.tuples(
    st.sampled_from([*SPECS]), st.integers(1, 80), st.sampled_from([0.0, 0.03, 0.5, 1.0]), st.sampled_from([1, 3, 25]),
    st.integers(1, 5), st.integers(0, 1 << 32),
)  # fmt: skip


def draw_rows(kind: str, rows: int, share: float, scores: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Return outputs and labels; `share` of the labels is not the most frequent one, and there are so many `scores`."""
    spec = SPECS[kind]
    output = STEP * random.integers(-scores // 2, scores // 2 + 1, (rows, *spec.output)).astype(float)
    if kind == "multiclass":
        truth = np.where(random.random(rows) < share, random.integers(0, 4, rows), 1)
        return output, np.where(random.random(rows) < 0.1, -100, truth)
    if kind.startswith("number"):
        mean = random.choice([0.0, 1e3, -1e6])
        return mean + output, mean + random.normal(size=(rows, *spec.label)) * (random.random() < share)
    return output, (random.random((rows, *spec.label)) < share).astype(np.int64)


@settings(max_examples=40, deadline=None)
@given(rows_of_any_kind)
def test_metrics_equal_scikit_learns_in_all_rows_and_in_each_slice(drawn: tuple[Any, ...]) -> None:
    kind, rows, share, scores, tasks, seed = drawn
    random = np.random.default_rng(seed)
    output, truth = draw_rows(kind, rows, share, scores, random)
    slices = random.choice(SLICES, rows, p=[0.6, 0.3, 0.1])
    labeled = slices != "no label"
    cuts = np.unique(random.integers(0, rows, 6)).tolist()
    model = compute_metrics(
        OF_KIND[kind], SPECS[kind], output, truth, slice_by=slices, labeled=labeled, cuts=cuts, tasks=tasks,
        seed=seed,
    )  # fmt: skip
    check(kind, model.metrics, output[labeled], truth[labeled])
    assert {part.value: part.rows for part in model.slices} == {name: int((slices == name).sum()) for name in {*slices}}
    for part in model.slices:
        members = (slices == part.value) & labeled
        check(kind, part.metrics, output[members], truth[members])


def check(kind: str, metrics: dict[str, Any], output: Array, truth: Array) -> None:
    """Check metrics of rows; one that has no value is None."""
    if kind == "multiclass":
        output, truth = output[truth != -100], truth[truth != -100]
    if not len(truth):
        matrix = metrics.pop("confusion_matrix", [])
        assert not np.any(matrix) and {*metrics.values()} == {None}
        return
    expected = {"binary": expect_binary, "multiclass": expect_multiclass, "multilabel": expect_multilabel}.get(
        kind, expect_numbers
    )(output, truth)
    assert metrics.pop("confusion_matrix", None) == expected.pop("confusion_matrix", None)
    assert [name for name in metrics if metrics[name] is None] == [name for name in metrics if expected[name] is None]
    for name, value in metrics.items():
        is_binned = kind == "multiclass" and name in ("auroc", "average_precision")  # odds are not whole steps
        assert value is None or abs(value - expected[name]) <= (bound_error(truth) if is_binned else TOLERANCE), name


def bound_error(truth: Array) -> float:
    """Return the error of areas that the guide of evaluations states."""
    positives = np.bincount(truth)
    return 0.003 + 0.3 / min(count for count in (*positives, *(len(truth) - positives)) if count)


def expect_binary(output: Array, truth: Array) -> dict[str, Any]:
    probability, guess = 1 / (1 + np.exp(-output)), (output > 0).astype(int)
    return {
        "accuracy": reference.accuracy_score(truth, guess),
        "precision": reference.precision_score(truth, guess, zero_division=0),
        "recall": reference.recall_score(truth, guess, zero_division=0),
        "f1": reference.f1_score(truth, guess, zero_division=0),
        "auroc": compute_area(reference.roc_auc_score, truth, output, 2),
        "average_precision": compute_area(reference.average_precision_score, truth, output, 1),
        "log_loss": reference.log_loss(truth, probability, labels=[0, 1]),
        "calibration_error": of_torch.binary_calibration_error(tensor(probability), tensor(truth), 15).item(),
        "confusion_matrix": reference.confusion_matrix(truth, guess, labels=[0, 1]).tolist(),
    }


def expect_multiclass(output: Array, truth: Array) -> dict[str, Any]:
    exponentials = np.exp(output)
    probability = exponentials / exponentials.sum(axis=1, keepdims=True)
    guess = output.argmax(axis=1)
    is_class = np.eye(4, dtype=int)[truth]
    odds = np.log(probability) - np.log1p(-probability)
    macro = {"average": "macro", "zero_division": 0}
    calibration = of_torch.multiclass_calibration_error(tensor(probability), tensor(truth), 4, n_bins=15)
    return {
        "accuracy": reference.accuracy_score(truth, guess),
        "precision": reference.precision_score(truth, guess, **macro),
        "recall": reference.recall_score(truth, guess, **macro),
        "f1": reference.f1_score(truth, guess, **macro),
        "auroc": average_areas(reference.roc_auc_score, is_class, odds.round(9), 2),
        "average_precision": average_areas(reference.average_precision_score, is_class, odds.round(9), 1),
        "log_loss": reference.log_loss(truth, probability, labels=range(4)),
        "calibration_error": calibration.item(),
        "confusion_matrix": reference.confusion_matrix(truth, guess, labels=range(4)).tolist(),
    }


def expect_multilabel(output: Array, truth: Array) -> dict[str, Any]:
    each = [expect_binary(output[:, number], truth[:, number]) for number in range(3)]
    guess = (output > 0).astype(int)
    occurs = (guess + truth).any(axis=0)

    def average(name: str) -> float | None:
        values = [own[name] for own, occurring in zip(each, occurs, strict=True) if occurring]
        return float(np.mean(values)) if values else None

    probability = 1 / (1 + np.exp(-output))
    calibration = of_torch.binary_calibration_error(tensor(probability.ravel()), tensor(truth.ravel()), 15)
    return {
        "accuracy": np.mean([own["accuracy"] for own in each]),
        **{name: average(name) for name in ("precision", "recall", "f1")},
        "auroc": average_areas(reference.roc_auc_score, truth, output, 2),
        "average_precision": average_areas(reference.average_precision_score, truth, output, 1),
        "log_loss": np.mean([own["log_loss"] for own in each]),
        "calibration_error": calibration.item(),
        "confusion_matrix": [own["confusion_matrix"] for own in each],
    }


def expect_numbers(output: Array, truth: Array) -> dict[str, Any]:
    is_equal = (truth == truth[0]).all(axis=0)
    return {
        "mae": reference.mean_absolute_error(truth, output),
        "mse": reference.mean_squared_error(truth, output),
        "rmse": reference.root_mean_squared_error(truth, output),
        "r2": None if np.any(is_equal) else reference.r2_score(truth, output),
    }


def compute_area(area: Callable[..., float], truth: Array, scores: Array, classes: int) -> float | None:
    """Return an area under a curve, None without a positive, or where both classes are needed, without one of both."""
    return area(truth, scores) if truth.any() and (classes == 1 or not truth.all()) else None


def average_areas(area: Callable[..., float], truth: Array, scores: Array, classes: int) -> float | None:
    """Return the mean of the areas that have a value."""
    areas = map(partial(compute_area, area, classes=classes), truth.T, scores.T)
    values = [value for value in areas if value is not None]
    return float(np.mean(values)) if values else None
