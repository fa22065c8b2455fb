"""Slices, intervals and differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.etl.metrics.model_metrics import model_metrics
from trainyard.etl.metrics.family import Task

NUMBERS = Task((), (), None, "none")
CLASSES = Task((3,), (), 3, "softmax")


def guesses(rows, right=0.8, seed=0):
    """Logits (rows, 3), each right with the chance `right`, and the truth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, rows)
    guess = np.where(rng.random(rows) < right, truth, (truth + 1) % 3)
    return 5.0 * np.eye(3)[guess], truth


@given(st.lists(st.integers(0, 40), max_size=5), st.integers(0, 5))
@settings(max_examples=25)
def test_metrics_do_not_depend_on_how_rows_are_cut_or_dealt(cuts, seed):
    output, truth = guesses(40)
    names = ["accuracy", "auroc", "log_loss"]
    assert model_metrics(names, CLASSES, output, truth, cuts=sorted(cuts), seed=seed).metrics == pytest.approx(
        model_metrics(names, CLASSES, output, truth).metrics
    )


def test_a_slice_has_the_metrics_of_its_rows_alone():
    output, truth = guesses(300)
    of = np.array(["b", "a", "c"])[np.arange(300) % 3]
    names = ["accuracy", "auroc", "tests.etl.metrics.own:top"]
    found = model_metrics(names, CLASSES, output, truth, of=of, cuts=[50, 51, 200]).slices
    assert [(s.column, s.value, s.rows) for s in found] == [("of", "a", 100), ("of", "b", 100), ("of", "c", 100)]
    for slice in found:
        rows = of == slice.value
        assert slice.metrics == pytest.approx(model_metrics(names, CLASSES, output[rows], truth[rows]).metrics)
        low, high = slice.intervals["accuracy"]
        assert low < slice.metrics["accuracy"] < high


def test_intervals_are_as_wide_as_scipys_bootstrap():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=5000)
    guess = truth + rng.normal(size=5000)
    low, high = model_metrics(["mae"], NUMBERS, guess, truth).intervals["mae"]
    theirs = stats.bootstrap((np.abs(guess - truth),), np.mean, n_resamples=2000, method="percentile", rng=0)
    expected = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert 0.7 * expected < high - low < 1.4 * expected


def test_an_interval_holds_the_true_value_as_often_as_it_says():
    held = 0
    for seed in range(200):
        output, truth = guesses(400, seed=seed)
        low, high = model_metrics(["accuracy"], CLASSES, output, truth, seed=seed).intervals["accuracy"]
        held += low <= 0.8 <= high
    assert 0.89 <= held / 200 <= 0.985, "95 % but for 50 buckets and 200 trials"


def test_less_confidence_makes_a_narrower_interval():
    output, truth = guesses(500)
    wide = model_metrics(["accuracy"], CLASSES, output, truth, confidence=0.99).intervals["accuracy"]
    narrow = model_metrics(["accuracy"], CLASSES, output, truth, confidence=0.5).intervals["accuracy"]
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_a_difference_is_told_more_precisely_than_by_two_intervals():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=2000)
    common = rng.normal(size=2000)
    better = model_metrics(["mse"], NUMBERS, truth + common, truth)
    worse = model_metrics(["mse"], NUMBERS, truth + 1.05 * common, truth)
    found = better.above(worse)["mse"]
    assert found.value == pytest.approx(better.metrics["mse"] - worse.metrics["mse"])
    low, high = found.interval
    assert low < found.value < high < 0, "better beyond doubt"
    assert better.intervals["mse"][1] > worse.intervals["mse"][0], "which the two intervals would not show"


def test_a_model_does_not_differ_from_itself():
    output, truth = guesses(100)
    one = model_metrics(["accuracy"], CLASSES, output, truth)
    same = one.above(model_metrics(["accuracy"], CLASSES, output, truth))
    assert same["accuracy"].value == 0
    assert same["accuracy"].interval == (0, 0)
