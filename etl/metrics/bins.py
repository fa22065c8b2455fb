"""Bins of scores: areas under curves are sums over bins of log odds, whose number does not grow with the rows.

Fixed bins resolve scores near 0 and 1 as well as those in the middle. Edges that are chosen by some scores split them,
so that the areas do not depend on how close together the scores of a model are: at quantiles, and at even distances
from the median to far beyond the highest of these scores, where rare positives are.
"""

from __future__ import annotations

import math

import numpy as np

from trainyard.etl.metrics.family import Floats, Integers

FIXED_BINS = 256
EVEN_LOG_ODDS, MAX_LOG_ODDS = 8.0, 300.0
"""Half of the fixed bins are even, up to a probability of 3 in 10,000; the others grow with the log odds up to this."""
_QUANTILE_EDGES, _EVEN_EDGES = 64, 192
_REACH = 2.0
"""Even edges reach so many times as far from the median as the highest score of the sample."""
EDGES = _QUANTILE_EDGES + _EVEN_EDGES
BINS = FIXED_BINS + EDGES
SAMPLE_ROWS = 1000
"""Rows from whose scores the edges are taken."""
_QUANTILES = 1 / (1 + np.exp(-np.linspace(-math.log(SAMPLE_ROWS), math.log(SAMPLE_ROWS), _QUANTILE_EDGES)))
"""Quantiles that lie closer together near the lowest and the highest score, which average precision depends on."""


def choose_edges(odds: Floats) -> Floats:
    """Return the edges of each class or label for some log odds, ascending, (classes or labels, edges).

    Args:
        odds: Log odds, (rows, classes or labels).
    """
    odds = np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS)
    middle = np.median(odds, axis=0)
    even = np.linspace(middle, middle + _REACH * (odds.max(axis=0) - middle), _EVEN_EDGES)
    return np.sort(np.concatenate([np.quantile(odds, _QUANTILES, axis=0), even]), axis=0).T


def find_bins(odds: Floats, edges: Floats | None) -> Integers:
    """Return the bin of each log odds (rows, classes or labels): of the fixed ones, which the edges split.

    Args:
        odds: Log odds, (rows, classes or labels).
        edges: The edges of each class or label; None for the fixed bins alone.
    """
    bins = _find_fixed_bins(odds)
    if edges is not None:
        below = [np.searchsorted(own, of_class, side="right") for own, of_class in zip(edges, odds.T, strict=True)]
        bins += np.stack(below, axis=1)
    return bins


def merge_bins(scores: Floats) -> Floats:
    """Return the scores of one class with consecutive bins that have no positives as one, which changes no area.

    Most bins of one class among many are such.

    Args:
        scores: The rows of each bin, (..., truth, bins).
    """
    has_positives = scores[..., 1, :].sum(axis=(0, 1)) > 0
    starts = np.flatnonzero(has_positives | np.append(True, has_positives[:-1]))
    return np.add.reduceat(scores, starts, axis=-1)


def _find_fixed_bins(odds: Floats) -> Integers:
    even, sizes = FIXED_BINS // 4, np.abs(odds)
    growth = math.log(MAX_LOG_ODDS / EVEN_LOG_ODDS) / (FIXED_BINS // 2 - even)
    beyond = even + np.log(np.maximum(sizes / EVEN_LOG_ODDS, 1)) / growth
    distance = np.where(sizes < EVEN_LOG_ODDS, sizes / EVEN_LOG_ODDS * even, beyond)
    bins = FIXED_BINS // 2 + np.floor(np.copysign(distance, odds))
    return np.clip(bins, 0, FIXED_BINS - 1).astype(np.int64)  # type: ignore[no-any-return]
