"""Confidence intervals by the bootstrap: metrics over buckets of rows that are drawn again, with replacement.

Rows are assigned to buckets at random, so each bucket is a small independent sample of the dataset. Resampling buckets
takes neither another pass over the rows nor memory for them (Chamandy et al., Estimating Uncertainty for Massive Data
Streams, 2012). All models use the same resamples, so that their differences do not come from different rows.

Where all resamples are equal, as they are for few rows that are all right, proportions of rows have Wilson's interval,
and other metrics none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.etl.metrics.classification import MATRIX, SCORES, Classification, Trials
from trainyard.etl.metrics.family import Floats, MetricFamily, average
from trainyard.etl.metrics.sums import BUCKETS

RESAMPLES = 1000
_MAX_CELLS = 1 << 19
"""Cells of resampled sums that are computed at a time."""


def compute_point_estimates(family: MetricFamily, sums: Mapping[str, Floats]) -> dict[str, Any]:
    """Return the metrics over all buckets: floats, None where there is no value, nested lists for a matrix."""
    metrics = family.compute({name: values.sum(axis=0, keepdims=True) for name, values in sums.items()})
    return {name: _to_python(values[0]) for name, values in metrics.items()}


def resample_metrics(family: MetricFamily, sums: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the values (RESAMPLES,) of each metric that is a number.

    The resamples are the same for every family and model. Areas under curves are means over classes, and are computed
    class by class: the scores of many classes are too large to be read for each resample.
    """
    if not family.by_row:
        return {}
    small = {name: values for name, values in sums.items() if name not in (MATRIX, SCORES)}
    resampled = _resample_metrics(family, small) if small else {}
    if SCORES in sums and isinstance(family, Classification):
        areas = [_resample_metrics(part, {SCORES: scores}) for part, scores in family.split_scores(sums[SCORES])]
        for name in areas[0]:
            values = np.stack([of_class[name] for of_class in areas], axis=1)
            resampled[name] = average(values, ~np.isnan(values))
    return resampled


def compute_interval(values: Floats, confidence: float) -> tuple[float, float] | None:
    """Return the bounds of the middle `confidence` of the finite values, None if there are none."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return None
    low, high = np.quantile(finite, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def compute_wilson_interval(trials: Trials, confidence: float) -> tuple[float, float]:
    """Return the interval of a proportion, or the mean of those of several, also where all trials ended alike.

    E. B. Wilson: "Probable inference, the law of succession, and statistical inference", JASA 22, 1927.
    """
    successes, counts = trials
    square = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    center = (successes + square / 2) / (counts + square)
    rest = np.maximum(counts, 1)
    width = np.sqrt(square * (successes * (counts - successes) / rest + square / 4)) / (counts + square)
    return float((center - width).mean()), float((center + width).mean())


@lru_cache(maxsize=1)
def _draw_bucket_counts() -> Floats:
    """Return how often each bucket is drawn in each resample: (RESAMPLES, BUCKETS)."""
    even = np.full(BUCKETS, 1 / BUCKETS)
    return np.random.default_rng(0).multinomial(BUCKETS, even, RESAMPLES).astype(np.float64)


def _resample_metrics(family: MetricFamily, sums: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the values (RESAMPLES,) of each metric of some sums that is a number."""
    size = max(values[0].size for values in sums.values())
    step = max(_MAX_CELLS // size, 1)
    parts = []
    for start in range(0, RESAMPLES, step):
        counts = _draw_bucket_counts()[start : start + step]
        parts.append(family.compute({name: _resample(counts, values) for name, values in sums.items()}))
    numbers = [name for name, values in parts[0].items() if values.ndim == 1]
    return {name: np.concatenate([part[name] for part in parts]) for name in numbers}


def _resample(counts: Floats, sums: Floats) -> Floats:
    """Return the sums over the buckets that each resample draws, (resamples, ...)."""
    return np.tensordot(counts, sums, 1)


def _to_python(value: NDArray[Any]) -> Any:
    if value.ndim:
        return value.tolist()
    return value.item() if np.isfinite(value) else None
