"""Classification metrics equal those of scikit-learn and torchmetrics."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference
from torchmetrics.functional import classification as torch_reference

from tests.etl.metrics.model_metrics import compute_metrics
from trainyard.errors import TrainyardError
from trainyard.etl.metrics import intervals
from trainyard.etl.metrics.classification import MATRIX, SCORES, build_family
from trainyard.etl.metrics.family import OutputSpec, ScoredRows, divide
from trainyard.etl.metrics.sums import BUCKETS

ALL = ["accuracy", "precision", "recall", "f1", "auroc", "average_precision", "log_loss", "calibration_error"]
approx = pytest.approx


def make_classes(rows=600, count=4, seed=0):
    """Return logits (rows, count) that are often correct, and the truth (rows,)."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, count, rows)
    return rng.normal(size=(rows, count)) + 1.5 * np.eye(count)[truth], truth


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def sigmoid(logits):
    return 1 / (1 + np.exp(-logits))


@pytest.mark.parametrize("link", ["softmax", "exp", "none"])
def test_multiclass_metrics_equal_scikit_learns(link):
    logits, truth = make_classes()
    probability = softmax(logits)
    output = {"softmax": logits, "exp": np.log(probability), "none": probability}[link]
    metrics = compute_metrics(
        [*ALL, "confusion_matrix"], OutputSpec((4,), (), 4, link), output, truth, cuts=[100, 101, 350]
    ).metrics
    guess = probability.argmax(1)
    assert metrics["accuracy"] == approx(reference.accuracy_score(truth, guess))
    assert metrics["precision"] == approx(reference.precision_score(truth, guess, average="macro"))
    assert metrics["recall"] == approx(reference.recall_score(truth, guess, average="macro"))
    assert metrics["f1"] == approx(reference.f1_score(truth, guess, average="macro"))
    assert metrics["auroc"] == approx(reference.roc_auc_score(truth, probability, multi_class="ovr"), abs=2e-3)
    precision = reference.average_precision_score(np.eye(4)[truth], probability)
    assert metrics["average_precision"] == approx(precision, abs=5e-3)
    assert metrics["log_loss"] == approx(reference.log_loss(truth, probability))
    error = torch_reference.multiclass_calibration_error(torch.tensor(probability), torch.tensor(truth), 4, n_bins=15)
    assert metrics["calibration_error"] == approx(error.item(), abs=1e-6)
    assert metrics["confusion_matrix"] == reference.confusion_matrix(truth, guess).tolist()


@pytest.mark.parametrize("ignored", [-100, 2])
def test_rows_with_the_ignored_label_are_left_out(ignored):
    logits, truth = make_classes()
    truth[:300] = np.where(np.arange(300) % 3 == 0, ignored, truth[:300])
    truth[100:200] = ignored
    counted = truth != ignored
    spec, cuts = OutputSpec((4,), (), 4, "softmax", ignored), [100, 200, 350]
    metrics = compute_metrics([*ALL, "confusion_matrix"], spec, logits, truth, cuts=cuts).metrics
    expected = compute_metrics(
        [*ALL, "confusion_matrix"], OutputSpec((4,), (), 4, "softmax"), logits[counted], truth[counted]
    ).metrics
    areas = ("auroc", "average_precision")  # their bins depend on the scores of some rows, also of those left out
    assert metrics == {
        name: approx(np.asarray(value), abs=1e-3 if name in areas else 1e-12) for name, value in expected.items()
    }
    losses = build_family(ALL, spec).compute_losses(ScoredRows(logits, truth))
    torch_losses = torch.nn.functional.cross_entropy(
        torch.tensor(logits), torch.tensor(truth), ignore_index=ignored, reduction="none"
    )
    assert losses == approx(torch_losses.numpy())


@pytest.mark.parametrize("shape", [(), (1,)])
def test_binary_metrics_equal_scikit_learns(shape):
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 2, 500)
    logits = rng.normal(size=500) + 1.2 * (truth - 0.7)
    output = logits.reshape(-1, *shape)
    metrics = compute_metrics([*ALL, "confusion_matrix"], OutputSpec(shape, (), 2, "sigmoid"), output, truth).metrics
    probability, guess = sigmoid(logits), (logits > 0).astype(int)
    assert metrics["accuracy"] == approx(reference.accuracy_score(truth, guess))
    assert metrics["precision"] == approx(reference.precision_score(truth, guess))
    assert metrics["recall"] == approx(reference.recall_score(truth, guess))
    assert metrics["f1"] == approx(reference.f1_score(truth, guess))
    assert metrics["auroc"] == approx(reference.roc_auc_score(truth, probability), abs=2e-3)
    assert metrics["average_precision"] == approx(reference.average_precision_score(truth, probability), abs=5e-3)
    assert metrics["log_loss"] == approx(reference.log_loss(truth, probability))
    error = torch_reference.binary_calibration_error(torch.tensor(probability), torch.tensor(truth), n_bins=15)
    assert metrics["calibration_error"] == approx(error.item(), abs=1e-6)
    assert metrics["confusion_matrix"] == reference.confusion_matrix(truth, guess).tolist()


def test_multilabel_metrics_equal_scikit_learns():
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 2, (400, 3))
    logits = rng.normal(size=(400, 3)) + 1.5 * (truth - 0.5)
    metrics = compute_metrics(
        [*ALL, "confusion_matrix"], OutputSpec((3,), (3,), None, "sigmoid"), logits, truth
    ).metrics
    probability, guess = sigmoid(logits), (logits > 0).astype(int)
    assert metrics["accuracy"] == approx((guess == truth).mean())
    assert metrics["f1"] == approx(reference.f1_score(truth, guess, average="macro"))
    assert metrics["auroc"] == approx(reference.roc_auc_score(truth, probability), abs=2e-3)
    assert metrics["average_precision"] == approx(reference.average_precision_score(truth, probability), abs=5e-3)
    assert metrics["log_loss"] == approx(
        np.mean([reference.log_loss(truth[:, i], probability[:, i]) for i in range(3)])
    )
    assert metrics["confusion_matrix"] == reference.multilabel_confusion_matrix(truth, guess).tolist()


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30))
def test_classes_that_do_not_occur_are_ignored_as_in_scikit_learn(pairs):
    truth, guess = (np.array(side) for side in zip(*pairs, strict=True))
    metrics = compute_metrics(
        ["precision", "recall", "f1"], OutputSpec((3,), (), 3, "softmax"), 9.0 * np.eye(3)[guess], truth
    ).metrics
    for name, score in [
        ("precision", reference.precision_score), ("recall", reference.recall_score), ("f1", reference.f1_score)
    ]:  # fmt: skip
        assert metrics[name] == approx(score(truth, guess, average="macro", zero_division=0))


@pytest.mark.slow
@given(st.data(), st.integers(1, 12))
def test_average_precision_of_a_few_rows_equals_scikit_learns(data, rows):
    """Scores that differ are in bins of their own, so that nothing is approximated."""
    logits = np.array(data.draw(st.lists(st.integers(-10, 10), min_size=rows, max_size=rows, unique=True)), float)
    truth = np.array(data.draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows).filter(any)))
    metrics = compute_metrics(["average_precision"], OutputSpec((), (), 2, "sigmoid"), logits, truth).metrics
    assert metrics["average_precision"] == approx(reference.average_precision_score(truth, logits))


def test_average_precision_of_scores_that_differ_in_one_bin_is_that_of_rows_spread_evenly():
    sums = np.zeros((1, 1, 2, 512))
    sums[..., 300] = 2
    family = build_family(["average_precision"], OutputSpec((), (), 2, "sigmoid"))
    value = family.compute({SCORES: sums})["average_precision"]
    assert value == approx(1.5 / 2.5), "on average 1.5 positives and 1 negative up to a positive"


@pytest.mark.parametrize("link", ["sigmoid", "none"])
@pytest.mark.parametrize("share", [0.5, 0.02])
@pytest.mark.parametrize("distinct", [1, 2, 5, 40, 101])
def test_average_precision_of_few_different_scores_equals_scikit_learns(distinct, share, link):
    """Where a threshold takes many rows at once, no order of them is assumed."""
    rng = np.random.default_rng(distinct)
    truth = (rng.random(8000) < share).astype(int)
    scores = rng.normal(size=8000) + 1.5 * truth
    steps = np.searchsorted(np.quantile(scores, np.linspace(0, 1, distinct + 1)[1:-1]), scores)
    output = steps / max(distinct - 1, 1) if link == "none" else 0.07 * steps - 4
    metrics = compute_metrics(["average_precision"], OutputSpec((), (), 2, link), output, truth).metrics
    tolerance = 1e-9 if distinct <= 40 else 0.003
    assert metrics["average_precision"] == approx(reference.average_precision_score(truth, output), abs=tolerance)


def test_average_precision_without_positives_has_no_value():
    metrics = compute_metrics(["average_precision"], OutputSpec((), (), 2, "sigmoid"), np.arange(3.0), np.zeros(3, int))
    assert metrics.metrics == {"average_precision": None}


def test_scores_near_one_are_resolved_as_well_as_those_in_the_middle():
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 2000)
    logits = 7 + rng.normal(size=2000) + truth
    metrics = compute_metrics(["auroc"], OutputSpec((), (), 2, "sigmoid"), logits, truth).metrics
    assert metrics["auroc"] == approx(reference.roc_auc_score(truth, logits), abs=3e-3)


@pytest.mark.parametrize(
    ("center", "spread", "tolerance"),
    [(0, 1, 0.002), (0, 10, 0.002), (0, 30, 0.002), (20, 1, 0.04), (-15, 1, 0.03), (60, 5, 0.02), (-200, 20, 0.02)],
)
def test_scores_beyond_the_probabilities_of_ordinary_models_are_ranked(center, spread, tolerance):
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 5000)
    logits = center + spread * (rng.normal(size=5000) + 2 * truth - 1)
    metrics = compute_metrics(["auroc", "average_precision"], OutputSpec((), (), 2, "sigmoid"), logits, truth).metrics
    assert metrics["auroc"] == approx(reference.roc_auc_score(truth, logits), abs=tolerance)
    assert metrics["average_precision"] == approx(reference.average_precision_score(truth, logits), abs=tolerance)


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize(("center", "spread"), [(-4.6, 0.05), (0, 1e-4), (20, 0.01), (-200, 1e-3)])
def test_areas_do_not_depend_on_the_scale_of_scores(center, spread, in_order):
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 5000)
    truth = np.sort(truth) if in_order else truth
    logits = center + spread * (rng.normal(size=5000) + truth)
    metrics = compute_metrics(["auroc", "average_precision"], OutputSpec((), (), 2, "sigmoid"), logits, truth).metrics
    assert metrics["auroc"] == approx(reference.roc_auc_score(truth, logits), abs=3e-3)
    assert metrics["average_precision"] == approx(reference.average_precision_score(truth, logits), abs=3e-3)


def test_areas_of_each_class_do_not_depend_on_the_scale_of_its_scores():
    logits, truth = make_classes(3000, 3)
    scores = [-4, 1, 9] + logits * [1e-3, 1, 1e-2]
    metrics = compute_metrics(["auroc"], OutputSpec((3,), (3,), None, "sigmoid"), scores, np.eye(3)[truth]).metrics
    areas = [reference.roc_auc_score(truth == k, scores[:, k]) for k in range(3)]
    assert metrics["auroc"] == approx(np.mean(areas), abs=1e-3)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(
    rows=st.integers(500, 20_000), positives=st.integers(30, 400), shift=st.sampled_from([0.5, 1.5, 3.0]),
    scale=st.sampled_from([0.01, 1.0, 20.0]), digits=st.sampled_from([None, 3, 1, 0]), seed=st.integers(0, 9),
)  # fmt: skip
def test_metrics_of_rare_positives_and_equal_scores_equal_scikit_learns(rows, positives, shift, scale, digits, seed):
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.arange(rows) < positives).astype(int)
    logits = scale * (rng.normal(size=rows) + shift * (truth - 0.9))
    logits = logits if digits is None else logits.round(digits)
    guess = (logits > 0).astype(int)
    metrics = compute_metrics(ALL, OutputSpec((), (), 2, "sigmoid"), logits, truth).metrics
    assert metrics["accuracy"] == approx(reference.accuracy_score(truth, guess))
    assert metrics["precision"] == approx(reference.precision_score(truth, guess, zero_division=0))
    assert metrics["recall"] == approx(reference.recall_score(truth, guess))
    assert metrics["f1"] == approx(reference.f1_score(truth, guess))
    assert metrics["log_loss"] == approx(np.logaddexp(0, np.where(truth == 1, -logits, logits)).mean())
    tolerance = 0.003 + 0.3 / positives
    assert metrics["auroc"] == approx(reference.roc_auc_score(truth, logits), abs=tolerance)
    precision = reference.average_precision_score(truth, logits)
    ties = 0.0 if len(np.unique(logits)) == rows else 0.012  # of equal scores that the first rows do not have
    assert metrics["average_precision"] == approx(precision, abs=tolerance + ties)


@pytest.mark.parametrize(
    ("link", "spread"), [("softmax", 1), ("softmax", 10), ("softmax", 30), ("exp", 1), ("exp", 10)]
)
def test_scores_of_many_classes_are_those_of_their_log_odds(link, spread):
    logits, truth = make_classes(2000, 3)
    logits *= spread
    logarithms = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    output = logits if link == "softmax" else logarithms
    metrics = compute_metrics(["auroc"], OutputSpec((3,), (), 3, link), output, truth).metrics
    odds = np.stack(
        [logits[:, k] - np.logaddexp.reduce(np.delete(logits, k, axis=1), axis=1) for k in range(3)], axis=1
    )
    areas = [reference.roc_auc_score(truth == k, odds[:, k]) for k in range(3)]
    assert metrics["auroc"] == approx(np.mean(areas), abs=2e-3)


def test_a_metric_without_a_value_is_none():
    model = compute_metrics(["auroc"], OutputSpec((), (), 2, "sigmoid"), np.zeros(5), np.ones(5, int))
    assert model.metrics == {"auroc": None}
    assert model.intervals == {}


def test_the_roc_curve_equals_scikit_learns_when_scores_are_few():
    truth, logits = np.array([0, 0, 1, 1, 1, 0]), np.array([-2.0, 0, 0, 1, 3, 1])
    curve = compute_metrics(["auroc"], OutputSpec((), (), 2, "sigmoid"), logits, truth).curves["ROC"]
    false_positive, true_positive, _ = reference.roc_curve(truth, logits, drop_intermediate=False)
    assert curve == [[approx(x), approx(y)] for x, y in zip(false_positive, true_positive, strict=True)]


def test_the_calibration_curve_equals_scikit_learns():
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 2, 500)
    logits = rng.normal(size=500) + truth
    curves = compute_metrics(["calibration_error"], OutputSpec((), (), 2, "sigmoid"), logits, truth).curves
    from sklearn.calibration import calibration_curve

    accuracy, confidence = calibration_curve(truth, sigmoid(logits), n_bins=15)
    assert curves["calibration"] == [[approx(x), approx(y)] for x, y in zip(confidence, accuracy, strict=True)]


@pytest.mark.parametrize("spec", [OutputSpec((3,), (), 3, "softmax"), OutputSpec((3,), (3,), None, "sigmoid")])
def test_resamples_have_the_metrics_that_each_has_alone(spec):
    rng = np.random.default_rng(5)
    family = build_family(ALL, spec)
    sums = {name: rng.integers(0, 9, (4, *shape)).astype(float) for name, shape in family.shapes.items()}
    for name, values in family.compute(sums).items():
        alone = [family.compute({key: part[i : i + 1] for key, part in sums.items()})[name][0] for i in range(4)]
        np.testing.assert_allclose(values, alone, err_msg=name)


@given(st.integers(1, 300), st.integers(2, 9), st.integers(0, 1000))
def test_intervals_without_the_confusion_matrix_are_those_of_resampled_matrices(rows, count, seed):
    rng = np.random.default_rng(seed)
    truth, guess, bucket = rng.integers(0, count, rows), rng.integers(0, count, rows), rng.integers(0, BUCKETS, rows)
    tables, outcomes = np.zeros((BUCKETS, count, count)), np.zeros((BUCKETS, count, 3))
    np.add.at(tables, (bucket, truth, guess), 1)
    family = build_family(["accuracy", "f1", "confusion_matrix"], OutputSpec((count,), (), count, "softmax"))
    parts = {part.statistic: part for part in family.contribute(ScoredRows(9.0 * np.eye(count)[guess], truth))}
    part = parts["outcomes"]
    np.add.at(outcomes.reshape(BUCKETS, -1), (bucket[part.rows][:, None], part.cells), part.values)
    values = intervals.resample_metrics(family, {"outcomes": outcomes, MATRIX: tables})
    assert list(values) == ["accuracy", "f1"]

    resampled = np.tensordot(intervals._draw_bucket_counts(), tables, 1)
    correct, labeled, predicted = np.diagonal(resampled, axis1=1, axis2=2), resampled.sum(axis=2), resampled.sum(axis=1)
    np.testing.assert_array_equal(values["accuracy"], divide(correct.sum(axis=1), resampled.sum(axis=(1, 2))))
    f1 = divide(2 * correct, labeled + predicted, empty=0)
    np.testing.assert_allclose(values["f1"], divide(f1.sum(axis=1), (labeled + predicted > 0).sum(axis=1)), rtol=1e-12)


def test_metrics_of_many_classes_with_intervals_need_no_confusion_matrix():
    shapes = build_family(ALL, OutputSpec((10_000,), (), 10_000, "softmax")).shapes
    assert "confusion" not in shapes and shapes["outcomes"] == (10_000, 3)


def test_the_confusion_matrix_alone_has_no_interval():
    logits, truth = make_classes()
    model = compute_metrics(["confusion_matrix"], OutputSpec((4,), (), 4, "softmax"), logits, truth)
    assert model.intervals == {} and np.sum(model.metrics["confusion_matrix"]) == len(truth)


def test_scores_of_exactly_zero_and_one_are_in_the_outermost_bins():
    truth, probability = np.array([0, 0, 0, 1, 1]), np.array([0.0, 0.5, 0.5, 0.5, 1.0])
    with warnings.catch_warnings(action="error"):
        computed = compute_metrics(
            ["auroc", "calibration_error", "accuracy"], OutputSpec((), (), 2, "none"), probability, truth
        )
    assert computed.metrics["auroc"] == approx(5 / 6)
    assert computed.metrics["accuracy"] == 0.8, "0.5 is not above 0.5"
    assert computed.curves["calibration"] == [[0, 0], [0.5, approx(1 / 3)], [1, 1]]


def test_softmax_does_not_depend_on_the_size_of_the_logits():
    logits, truth = make_classes()
    shifted = logits + np.where(np.arange(len(truth)) % 2, 2000.0, -2000.0)[:, None]
    metrics = compute_metrics(["log_loss"], OutputSpec((4,), (), 4, "softmax"), shifted, truth).metrics
    assert metrics["log_loss"] == approx(reference.log_loss(truth, softmax(logits)))


@pytest.mark.parametrize(
    ("spec", "output", "truth", "loss"),
    [
        (OutputSpec((), (), 2, "sigmoid"), [40.0], [0], 40),
        (OutputSpec((2,), (2,), None, "sigmoid"), [[40.0, -60.0]], [[0, 1]], 50),
        (OutputSpec((2,), (), 2, "softmax"), [[1000.0, 0.0]], [1], 1000),
        (OutputSpec((2,), (), 2, "exp"), [[0.0, -1000.0]], [1], 1000),
    ],
)
def test_the_loss_of_a_confident_error_is_as_large_as_the_logit(spec, output, truth, loss):
    output, truth = np.array(output), np.array(truth)
    assert compute_metrics(["log_loss"], spec, output, truth).metrics["log_loss"] == approx(loss)
    assert build_family(["log_loss"], spec).compute_losses(ScoredRows(output, truth)) == approx(loss)


def test_f1_of_a_binary_model_without_positives_is_zero_as_in_scikit_learn():
    metrics = compute_metrics(["f1"], OutputSpec((), (), 2, "sigmoid"), np.full(5, -1.0), np.zeros(5, int)).metrics
    assert metrics["f1"] == 0


@pytest.mark.parametrize(("count", "curves"), [(10, 9), (11, 0)])
def test_there_is_a_roc_curve_of_limited_size_for_each_of_a_few_classes_that_occur(count, curves):
    logits, truth = make_classes(rows=2000, count=count)
    truth[truth == 3] = 2
    found = compute_metrics(["auroc"], OutputSpec((count,), (), count, "softmax"), 2 * logits, truth).curves
    assert list(found) == [f"ROC of {number}" for number in range(count) if number != 3][:curves]
    assert all(len(curve) == 64 and curve[-1] == [1, 1] for curve in found.values())


@pytest.mark.parametrize("label", [-1, 2])
def test_a_label_that_a_binary_model_does_not_have_is_refused(label):
    with pytest.raises(TrainyardError, match=f"labels must be whole numbers from 0 to 1 .*, but one is {label}"):
        compute_metrics(["accuracy"], OutputSpec((), (), 2, "sigmoid"), np.zeros(2), np.array([0, label]))


def test_a_label_that_is_not_a_class_is_refused():
    with pytest.raises(TrainyardError, match=r"from 0 to 3 .*, but one is 7\. Renumber them"):
        compute_metrics(["accuracy"], OutputSpec((4,), (), 4, "softmax"), np.zeros((2, 4)), np.array([1, 7]))


@pytest.mark.parametrize("label", [0.5, -0.3, np.nan, np.inf])
def test_a_label_that_is_not_a_whole_number_is_refused(label):
    with pytest.raises(TrainyardError, match=f"labels must be whole numbers from 0 to 3 .*, but one is {label}"):
        compute_metrics(["accuracy"], OutputSpec((4,), (), 4, "softmax"), np.zeros((2, 4)), np.array([1.0, label]))
    with pytest.raises(TrainyardError, match=f"labels must be whole numbers from 0 to 1 .*, but one is {label}"):
        compute_metrics(["f1"], OutputSpec((2,), (2,), None, "sigmoid"), np.zeros((1, 2)), np.array([[1.0, label]]))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (OutputSpec((), (2, 2), None, "none"), "does not set the number of classes"),
        (OutputSpec((3,), (), 4, "softmax"), r"one number for each of the recipe's classes \(4\).*shape \[3\]"),
        (OutputSpec((3,), (), None, "softmax"), "does not set the number of classes"),
        (
            OutputSpec((), (), None, "sigmoid"),
            r"does not set the number of classes\. Set classes= in the recipe, or use",
        ),
        (OutputSpec((4,), (3,), 4, "softmax"), r"one for each label; .* has shape \[4\], one of the label \[3\]"),
    ],
)
def test_a_model_that_is_not_a_classifier_is_refused(spec, message):
    with pytest.raises(TrainyardError, match=message):
        compute_metrics(["accuracy"], spec, np.zeros(1), np.zeros(1))
