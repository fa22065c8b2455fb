"""Metrics of slices, confidence intervals, and differences between models."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.etl.metrics.model_metrics import compute_metrics
from trainyard.etl.metrics.family import OutputSpec

NUMBERS = OutputSpec((), (), None, "none")
CLASSES = OutputSpec((3,), (), 3, "softmax")


def make_guesses(rows, accuracy=0.8, seed=0):
    """Return logits (rows, 3), each correct with the probability `accuracy`, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, rows)
    guess = np.where(rng.random(rows) < accuracy, truth, (truth + 1) % 3)
    return 5.0 * np.eye(3)[guess], truth


@given(st.lists(st.integers(0, 40), max_size=5), st.integers(0, 5))
@settings(max_examples=25)
def test_metrics_do_not_depend_on_batches_or_buckets(cuts, seed):
    output, truth = make_guesses(40)
    names = ["accuracy", "auroc", "log_loss"]
    assert compute_metrics(names, CLASSES, output, truth, cuts=sorted(cuts), seed=seed).metrics == pytest.approx(
        compute_metrics(names, CLASSES, output, truth).metrics
    )


def test_a_slice_has_the_metrics_of_only_its_rows():
    output, truth = make_guesses(300)
    values = np.array(["b", "a", "c"])[np.arange(300) % 3]
    names = ["accuracy", "auroc", "tests.etl.metrics.own:top"]
    slices = compute_metrics(names, CLASSES, output, truth, slice_by=values, cuts=[50, 51, 200]).slices
    assert [(s.column, s.value, s.rows) for s in slices] == [("of", "a", 100), ("of", "b", 100), ("of", "c", 100)]
    for slice in slices:
        rows = values == slice.value
        assert slice.metrics == pytest.approx(compute_metrics(names, CLASSES, output[rows], truth[rows]).metrics)
        low, high = slice.intervals["accuracy"]
        assert low < slice.metrics["accuracy"] < high


def test_intervals_are_as_wide_as_scipys_bootstrap():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=5000)
    guess = truth + rng.normal(size=5000)
    low, high = compute_metrics(["mae"], NUMBERS, guess, truth).intervals["mae"]
    reference = stats.bootstrap((np.abs(guess - truth),), np.mean, n_resamples=2000, method="percentile", rng=0)
    expected = reference.confidence_interval.high - reference.confidence_interval.low
    assert 0.7 * expected < high - low < 1.4 * expected


def test_the_true_value_is_below_and_above_an_interval_as_often_as_its_confidence_allows():
    below, above = 0, 0
    for seed in range(400):
        output, truth = make_guesses(400, seed=seed)
        low, high = compute_metrics(["accuracy"], CLASSES, output, truth, seed=seed).intervals["accuracy"]
        below, above = below + (low > 0.8), above + (high < 0.8)
    assert 5 <= below <= 16 and 5 <= above <= 16, "about 2.5 % of 400 on either side"


@pytest.mark.parametrize(("is_right", "interval"), [(True, (0.8318, 1.0)), (False, (0.0, 0.1682))])
def test_few_rows_that_are_all_right_or_all_wrong_have_the_interval_of_wilson(is_right, interval):
    truth = np.arange(19) % 2
    logits = np.where((truth == 1) == is_right, 5.0, -5.0)
    names = ["accuracy", "precision", "recall", "auroc"]
    intervals = compute_metrics(names, OutputSpec((), (), 2, "sigmoid"), logits, truth).intervals
    assert intervals["accuracy"] == pytest.approx(interval, abs=1e-4)
    assert intervals["recall"] == pytest.approx((0.7009, 1.0) if is_right else (0.0, 0.2991), abs=1e-4)
    assert intervals["precision"][1] - intervals["precision"][0] > 0.2
    assert "auroc" not in intervals, "the resamples of it are all equal, too"


def test_a_lower_confidence_results_in_a_narrower_interval():
    output, truth = make_guesses(500)
    wide = compute_metrics(["accuracy"], CLASSES, output, truth, confidence=0.99).intervals["accuracy"]
    narrow = compute_metrics(["accuracy"], CLASSES, output, truth, confidence=0.5).intervals["accuracy"]
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_the_interval_of_a_difference_is_narrower_than_two_intervals_suggest():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=2000)
    common = rng.normal(size=2000)
    better = compute_metrics(["mse"], NUMBERS, truth + common, truth)
    worse = compute_metrics(["mse"], NUMBERS, truth + 1.05 * common, truth)
    difference = better.compute_differences(worse)["mse"]
    assert difference.value == pytest.approx(better.metrics["mse"] - worse.metrics["mse"])
    low, high = difference.interval
    assert low < difference.value < high < 0, "the difference is significant"
    assert better.intervals["mse"][1] > worse.intervals["mse"][0], "the two intervals overlap"


def test_the_difference_of_two_rankings_is_paired_although_they_rank_other_rows_first():
    """Two models disagree about the first row of each query, and are equally good in each."""
    query = np.repeat(np.arange(300), 4)
    relevance = np.tile([1, 1, 0, 0], 300) * np.repeat(np.arange(300) % 3, 4)
    scores = np.tile([4.0, 3.0, 2.0, 1.0], 300), np.tile([3.0, 4.0, 2.0, 1.0], 300)
    one, other = (compute_metrics(["ndcg"], NUMBERS, score, relevance, query=query) for score in scores)
    assert one.intervals["ndcg"][0] < one.intervals["ndcg"][1], "queries differ"
    assert one.compute_differences(other)["ndcg"].interval == (0, 0)


def test_a_query_is_in_the_slice_of_its_first_row_for_each_model():
    query, relevance = np.repeat(np.arange(30), 2), np.tile([1, 0], 30)
    for score in ([2.0, 1.0], [1.0, 2.0]):
        [first] = compute_metrics(
            ["mrr"], NUMBERS, np.tile(score, 30), relevance, query=query, slice_by=np.tile(["first", "second"], 30)
        ).slices[:1]
        assert (first.value, first.metrics["mrr"]) == ("first", score[0] / 2)


def test_the_difference_of_a_model_from_itself_is_zero():
    output, truth = make_guesses(100)
    one = compute_metrics(["accuracy"], CLASSES, output, truth)
    differences = one.compute_differences(compute_metrics(["accuracy"], CLASSES, output, truth))
    assert differences["accuracy"].value == 0
    assert differences["accuracy"].interval == (0, 0)
