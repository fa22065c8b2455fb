"""Bins of scores: areas under curves are sums over bins of log odds, whose number does not grow with the rows.

Fixed bins resolve scores near 0 and 1 as well as those in the middle. Edges that are chosen by some scores split them,
so that the areas do not depend on how close together the scores of a model are: at quantiles, and at even distances
from the median to far beyond the highest of these scores, where rare positives are. A score that many rows have is
between two edges of its own: one threshold takes all of its rows.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from trainyard.etl.metrics.family import Floats, Integers, average, divide

FIXED_BINS = 256
EVEN_LOG_ODDS, MAX_LOG_ODDS = 8.0, 300.0
"""Half of the fixed bins are even, up to a probability of 3 in 10,000; the others grow with the log odds up to this."""
_QUANTILE_EDGES, _OTHER_EDGES = 64, 192
"""Edges at quantiles, and those around ties and at even distances."""
_MAX_TIES, _ROWS_PER_TIE = _OTHER_EDGES // 2, 256
"""The number of scores between edges of their own; each is that of 2 rows, and of one in so many."""
_REACH = 2.0
"""Even edges reach so many times as far from the median as the highest score of the sample."""
EDGES = _QUANTILE_EDGES + _OTHER_EDGES
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
    return np.stack([_choose_edges(of_class) for of_class in _limit(odds).T])


def compute_auroc(scores: Floats) -> Floats:
    """Return the probability that a positive has a higher score than a negative; equal scores count half."""
    negatives, positives = scores[..., 0, :], scores[..., 1, :]
    below = np.cumsum(negatives, axis=-1) - negatives
    pairs = positives.sum(axis=-1) * negatives.sum(axis=-1)
    areas = divide((positives * (below + negatives / 2)).sum(axis=-1), pairs)
    return average(areas, ~np.isnan(areas))


def compute_average_precision(scores: Floats, tied: NDArray[np.bool_] | None = None) -> Floats:
    """Return the mean precision at each positive, as scikit-learn does.

    Within a bin, positives are assumed to be spread evenly among its negatives; if it is `tied` (classes or labels,
    bins), one threshold takes all of its rows.
    """
    negatives, positives = scores[..., 0, ::-1], scores[..., 1, ::-1]
    spread = 1 if tied is None else ~tied[..., ::-1]
    correct = np.cumsum(positives, axis=-1) - spread * (positives - 1) / 2
    precision = divide(correct, correct + np.cumsum(negatives, axis=-1) - spread * negatives / 2, empty=0)
    areas = divide((precision * positives).sum(axis=-1), positives.sum(axis=-1))
    return average(areas, ~np.isnan(areas))


def _limit(odds: Floats) -> Floats:
    """Return log odds within bounds, rounded as outputs are: equal ones may differ in later digits."""
    return np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS).astype(np.float32).astype(np.float64)


def _choose_edges(odds: Floats) -> Floats:
    """Return the edges (EDGES,) for the log odds of one class (rows,)."""
    ties = _find_ties(odds)
    middle = np.median(odds)
    even = np.linspace(middle, middle + _REACH * (odds.max() - middle), _OTHER_EDGES - 2 * len(ties))
    return np.sort(np.concatenate([np.quantile(odds, _QUANTILES), ties, np.nextafter(ties, np.inf), even]))


def _find_ties(odds: Floats) -> Floats:
    """Return the most frequent log odds that several rows have, (ties,)."""
    values, counts = np.unique(odds, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MAX_TIES]
    return values[order[counts[order] >= max(2, len(odds) / _ROWS_PER_TIE)]]


def find_tied_bins(edges: Floats) -> NDArray[np.bool_]:
    """Return whether all scores in a bin are equal, (classes or labels, BINS): its two edges are adjacent numbers."""
    tied = np.zeros((len(edges), BINS), np.bool_)
    for bins, own in zip(tied, edges, strict=True):
        values = own[np.isin(np.nextafter(own, np.inf), own)]
        bins[find_bins(values[:, None], own[None])] = True
    return tied


def find_bins(odds: Floats, edges: Floats | None) -> Integers:
    """Return the bin of each log odds (rows, classes or labels): of the fixed ones, which the edges split.

    Args:
        odds: Log odds, (rows, classes or labels).
        edges: The edges of each class or label; None for the fixed bins alone.
    """
    odds = _limit(odds)
    bins = _find_fixed_bins(odds)
    if edges is not None:
        below = [np.searchsorted(own, of_class, side="right") for own, of_class in zip(edges, odds.T, strict=True)]
        bins += np.stack(below, axis=1)
    return bins


def merge_bins(scores: Floats) -> tuple[Floats, Integers]:
    """Return the scores of one class with consecutive bins that have no positives as one, which changes no area.

    Most bins of one class among many are such.

    Args:
        scores: The rows of each bin, (..., truth, bins).

    Returns:
        The rows of each of fewer bins, and the numbers of the first bins in them.
    """
    has_positives = scores[..., 1, :].sum(axis=(0, 1)) > 0
    starts = np.flatnonzero(has_positives | np.append(True, has_positives[:-1]))
    return np.add.reduceat(scores, starts, axis=-1), starts


def _find_fixed_bins(odds: Floats) -> Integers:
    even, sizes = FIXED_BINS // 4, np.abs(odds)
    growth = math.log(MAX_LOG_ODDS / EVEN_LOG_ODDS) / (FIXED_BINS // 2 - even)
    beyond = even + np.log(np.maximum(sizes / EVEN_LOG_ODDS, 1)) / growth
    distance = np.where(sizes < EVEN_LOG_ODDS, sizes / EVEN_LOG_ODDS * even, beyond)
    bins = FIXED_BINS // 2 + np.floor(np.copysign(distance, odds))
    return np.clip(bins, 0, FIXED_BINS - 1).astype(np.int64)  # type: ignore[no-any-return]
