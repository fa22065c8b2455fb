"""Intervals are quantiles of metrics over resampled buckets."""

from __future__ import annotations

import numpy as np
import pytest

from trainyard.etl.metrics import intervals
from trainyard.etl.metrics.classification import build_family
from trainyard.etl.metrics.family import OutputSpec, divide
from trainyard.etl.metrics.intervals import RESAMPLES, compute_interval, compute_point_estimates, resample_metrics
from trainyard.etl.metrics.sums import BUCKETS


@pytest.mark.parametrize(
    ("confidence", "interval"), [(0.9, (5, 95)), (0.5, (25, 75)), (0.98, (1, 99)), (0.0, (50, 50)), (1.0, (0, 100))]
)
def test_an_interval_leaves_out_as_many_values_below_as_above(confidence, interval):
    values = np.random.default_rng(0).permutation(np.arange(101.0))
    assert compute_interval(values, confidence) == pytest.approx(interval)


def test_values_that_are_not_finite_are_ignored():
    assert compute_interval(np.array([np.nan, 1.0, np.inf, 3.0, -np.inf]), 1.0) == (1, 3)
    assert compute_interval(np.array([np.nan, np.inf]), 0.9) is None


class Means:
    """A family with the mean of a column, and its sums as a matrix."""

    by_row = True

    def compute(self, sums):
        return {"mean": divide(sums["x"][:, 0], sums["x"][:, 1]), "matrix": sums["x"]}


def test_a_point_estimate_is_the_metric_of_all_buckets_together():
    sums = {"x": np.array([[1.0, 1.0], [5.0, 3.0]])}
    assert compute_point_estimates(Means(), sums) == {"mean": 1.5, "matrix": [6.0, 4.0]}
    assert compute_point_estimates(Means(), {"x": np.zeros((2, 2))})["mean"] is None


def make_sums(seed=0):
    return {"x": np.stack([np.random.default_rng(seed).normal(size=BUCKETS), np.ones(BUCKETS)], axis=1)}


def test_resamples_are_means_over_as_many_buckets_drawn_with_replacement():
    sums = make_sums()
    values = resample_metrics(Means(), sums)["mean"]
    assert values.shape == (RESAMPLES,)
    assert values.mean() == pytest.approx(sums["x"][:, 0].mean(), abs=0.02)
    assert values.std() == pytest.approx(sums["x"][:, 0].std() / np.sqrt(BUCKETS), rel=0.1)


def test_every_model_has_the_same_resamples():
    first, second = (
        resample_metrics(Means(), sums)["mean"] for sums in (make_sums(), {"x": make_sums()["x"] * [2, 1]})
    )
    assert second == pytest.approx(2 * first)


def test_resamples_computed_in_parts_are_the_same(monkeypatch):
    together = resample_metrics(Means(), make_sums())
    monkeypatch.setattr(intervals, "_MAX_CELLS", 14)
    parts = resample_metrics(Means(), make_sums())
    assert list(parts) == ["mean"], "only metrics that are one number have intervals"
    assert parts["mean"] == pytest.approx(together["mean"])


def test_a_metric_of_all_rows_at_once_has_no_resamples():
    family = Means()
    family.by_row = False
    assert resample_metrics(family, make_sums()) == {}


@pytest.mark.parametrize("spec", [OutputSpec((5,), (), 5, "softmax"), OutputSpec((5,), (5,), None, "sigmoid")])
def test_areas_that_are_resampled_by_class_are_means_over_the_classes_that_occur(spec):
    family = build_family(["auroc", "average_precision"], spec)
    rng = np.random.default_rng(0)
    sums = rng.integers(0, 3, (BUCKETS, *family.shapes["scores"])).astype(float)
    sums[:, :2, 1] *= rng.uniform(size=sums.shape[-1]) < 0.1
    sums[:, 2, 1] = 0
    sums[1:, 4, 1] = 0
    resampled = np.tensordot(intervals._draw_bucket_counts(), sums, 1)
    values = resample_metrics(family, {"scores": sums})
    expected = family.compute({"scores": resampled})
    assert values.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(values[name], expected[name], rtol=1e-12)


@pytest.fixture
def read(monkeypatch):
    """Return the list of the numbers of sums that were read for resamples."""
    sizes: list[int] = []
    resample = intervals._resample

    def count_sums(counts, sums):
        sizes.append(sums.size)
        return resample(counts, sums)

    monkeypatch.setattr(intervals, "_resample", count_sums)
    return sizes


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, pytest.param(300, marks=pytest.mark.full)])
def test_the_scores_of_any_number_of_classes_are_read_a_few_times_in_all(read, count):
    """All of them were read once for each resample."""
    family = build_family(["auroc", "average_precision"], OutputSpec((count,), (), count, "softmax"))
    sums = np.ones((BUCKETS, *family.shapes["scores"]))
    resample_metrics(family, {"scores": sums})
    assert sum(read) <= 4 * sums.size


def test_bins_without_positives_are_resampled_together(read):
    family = build_family(["auroc", "average_precision"], OutputSpec((3,), (), 3, "softmax"))
    sums = np.ones((BUCKETS, *family.shapes["scores"]))
    sums[:, :, 1] = 0
    sums[7, :, 1, [20, 200]] = 1
    resample_metrics(family, {"scores": sums})
    assert read == [BUCKETS * 2 * 5] * 3, "two bins with positives, and the three ranges around them"
