"""Metrics of classification, against scikit-learn and torchmetrics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as truth_of
from torchmetrics.functional import classification as torch_of

from tests.etl.metrics.model_metrics import model_metrics
from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import Task

ALL = ["accuracy", "precision", "recall", "f1", "auroc", "average_precision", "log_loss", "calibration_error"]
CLOSE = pytest.approx


def classes(rows=600, count=4, seed=0):
    """Logits (rows, count) that are often right, and the truth (rows,)."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, count, rows)
    return rng.normal(size=(rows, count)) + 1.5 * np.eye(count)[truth], truth


def softmax(logits):
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


@pytest.mark.parametrize("link", ["softmax", "exp", "none"])
def test_of_several_classes(link):
    logits, truth = classes()
    chance = softmax(logits)
    output = {"softmax": logits, "exp": np.log(chance), "none": chance}[link]
    found = model_metrics(
        [*ALL, "confusion_matrix"], Task((4,), (), 4, link), output, truth, cuts=[100, 101, 350]
    ).metrics
    guess = chance.argmax(1)
    assert found["accuracy"] == CLOSE(truth_of.accuracy_score(truth, guess))
    assert found["precision"] == CLOSE(truth_of.precision_score(truth, guess, average="macro"))
    assert found["recall"] == CLOSE(truth_of.recall_score(truth, guess, average="macro"))
    assert found["f1"] == CLOSE(truth_of.f1_score(truth, guess, average="macro"))
    assert found["auroc"] == CLOSE(truth_of.roc_auc_score(truth, chance, multi_class="ovr"), abs=2e-3)
    precision = truth_of.average_precision_score(np.eye(4)[truth], chance)
    assert found["average_precision"] == CLOSE(precision, abs=5e-3)
    assert found["log_loss"] == CLOSE(truth_of.log_loss(truth, chance))
    error = torch_of.multiclass_calibration_error(torch.tensor(chance), torch.tensor(truth), 4, n_bins=15)
    assert found["calibration_error"] == CLOSE(error.item(), abs=1e-6)
    assert found["confusion_matrix"] == truth_of.confusion_matrix(truth, guess).tolist()


@pytest.mark.parametrize("shape", [(), (1,)])
def test_of_yes_or_no(shape):
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 2, 500)
    logits = rng.normal(size=500) + 1.2 * (truth - 0.7)
    output = logits.reshape(-1, *shape)
    found = model_metrics([*ALL, "confusion_matrix"], Task(shape, (), 2, "sigmoid"), output, truth).metrics
    chance, guess = sigmoid(logits), (logits > 0).astype(int)
    assert found["accuracy"] == CLOSE(truth_of.accuracy_score(truth, guess))
    assert found["precision"] == CLOSE(truth_of.precision_score(truth, guess))
    assert found["recall"] == CLOSE(truth_of.recall_score(truth, guess))
    assert found["f1"] == CLOSE(truth_of.f1_score(truth, guess))
    assert found["auroc"] == CLOSE(truth_of.roc_auc_score(truth, chance), abs=2e-3)
    assert found["average_precision"] == CLOSE(truth_of.average_precision_score(truth, chance), abs=5e-3)
    assert found["log_loss"] == CLOSE(truth_of.log_loss(truth, chance))
    error = torch_of.binary_calibration_error(torch.tensor(chance), torch.tensor(truth), n_bins=15)
    assert found["calibration_error"] == CLOSE(error.item(), abs=1e-6)
    assert found["confusion_matrix"] == truth_of.confusion_matrix(truth, guess).tolist()


def test_of_labels_that_may_each_apply():
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 2, (400, 3))
    logits = rng.normal(size=(400, 3)) + 1.5 * (truth - 0.5)
    found = model_metrics([*ALL, "confusion_matrix"], Task((3,), (3,), None, "sigmoid"), logits, truth).metrics
    chance, guess = sigmoid(logits), (logits > 0).astype(int)
    assert found["accuracy"] == CLOSE((guess == truth).mean())
    assert found["f1"] == CLOSE(truth_of.f1_score(truth, guess, average="macro"))
    assert found["auroc"] == CLOSE(truth_of.roc_auc_score(truth, chance), abs=2e-3)
    assert found["average_precision"] == CLOSE(truth_of.average_precision_score(truth, chance), abs=5e-3)
    assert found["log_loss"] == CLOSE(np.mean([truth_of.log_loss(truth[:, i], chance[:, i]) for i in range(3)]))
    assert found["confusion_matrix"] == truth_of.multilabel_confusion_matrix(truth, guess).tolist()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30))
def test_classes_that_do_not_occur_are_left_out_as_scikit_learn_does(pairs):
    truth, guess = (np.array(side) for side in zip(*pairs, strict=True))
    found = model_metrics(
        ["precision", "recall", "f1"], Task((3,), (), 3, "softmax"), 9.0 * np.eye(3)[guess], truth
    ).metrics
    for name, score in [
        ("precision", truth_of.precision_score), ("recall", truth_of.recall_score), ("f1", truth_of.f1_score)
    ]:  # fmt: skip
        assert found[name] == CLOSE(score(truth, guess, average="macro", zero_division=0))


def test_scores_near_one_are_told_apart_as_well_as_those_in_the_middle():
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 2000)
    logits = 7 + rng.normal(size=2000) + truth
    found = model_metrics(["auroc"], Task((), (), 2, "sigmoid"), logits, truth).metrics
    assert found["auroc"] == CLOSE(truth_of.roc_auc_score(truth, logits), abs=3e-3)


def test_what_has_no_value_is_none():
    found = model_metrics(["auroc"], Task((), (), 2, "sigmoid"), np.zeros(5), np.ones(5, int))
    assert found.metrics == {"auroc": None}
    assert found.intervals == {}


def test_a_roc_curve_is_scikit_learns_where_scores_are_few():
    truth, logits = np.array([0, 0, 1, 1, 1, 0]), np.array([-2.0, 0, 0, 1, 3, 1])
    found = model_metrics(["auroc"], Task((), (), 2, "sigmoid"), logits, truth).curves["ROC"]
    wrong, right, _ = truth_of.roc_curve(truth, logits, drop_intermediate=False)
    assert found == [[CLOSE(x), CLOSE(y)] for x, y in zip(wrong, right, strict=True)]


def test_a_calibration_curve_is_scikit_learns():
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 2, 500)
    logits = rng.normal(size=500) + truth
    found = model_metrics(["calibration_error"], Task((), (), 2, "sigmoid"), logits, truth).curves["calibration"]
    from sklearn.calibration import calibration_curve

    right, confidence = calibration_curve(truth, sigmoid(logits), n_bins=15)
    assert found == [[CLOSE(x), CLOSE(y)] for x, y in zip(confidence, right, strict=True)]


def test_a_label_that_is_no_class_is_named():
    with pytest.raises(TrainyardError, match=r"labels must be 0 to 3 .*, and there are 1 to 7\. Renumber them"):
        model_metrics(["accuracy"], Task((4,), (), 4, "softmax"), np.zeros((2, 4)), np.array([1, 7]))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Task((), (2, 2), None, "none"), "does not say how many classes there are"),
        (Task((3,), (), 4, "softmax"), r"one number for each of the recipe's classes \(4\).*shape \[3\]"),
        (Task((3,), (), None, "softmax"), "does not say how many classes there are"),
        (Task((), (), None, "sigmoid"), "does not say how many classes there are"),
    ],
)
def test_what_is_no_classification_is_refused(task, message):
    with pytest.raises(TrainyardError, match=message):
        model_metrics(["accuracy"], task, np.zeros(1), np.zeros(1))
