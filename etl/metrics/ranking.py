"""Metrics of ranking, as means over queries.

The output is the score of a row within its query, and the label is its relevance. A query without a relevant row
counts as 0. The gain of a row is its relevance, as in scikit-learn's and torchmetrics' NDCG.

The order of rows with the same score is arbitrary, so a metric is its mean over all of their orders (McSherry and
Najork, Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores, 2008). It does
not depend on the order in which rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import (
    Contribution,
    Floats,
    Integers,
    MetricFamily,
    OutputSpec,
    ScoredRows,
    Sums,
    divide,
)
from trainyard.schemas.specs.metrics import split_cutoff


def build_family(metrics: Sequence[str], spec: OutputSpec) -> MetricFamily:
    """Return the family that computes `metrics`.

    Raises:
        TrainyardError: The network does not return one score for each row.
    """
    if spec.output not in ((), (1,)) or spec.label:
        raise TrainyardError(
            f"metric {metrics[0]!r} is for ranking: the network must return one score for each row, and the label "
            f"must be its relevance; a row of the output has shape {list(spec.output)}, one of the label "
            f"{list(spec.label)}."
        )
    return Ranking(tuple(metrics))


@dataclass(frozen=True)
class Ranking:
    """The family of ranking metrics. Rows of one query must be in one batch."""

    metrics: tuple[str, ...]
    by_row: bool = True

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The sum of each metric over queries, and the number of queries."""
        return dict.fromkeys(self.metrics, (2,))

    def contribute(self, rows: ScoredRows) -> Iterator[Contribution]:
        """Yield the metrics of each query, on behalf of its first row, which is the same for all models."""
        assert rows.query is not None
        first = np.unique(rows.query, return_index=True)[1]
        relevance, score = rows.truth.astype(np.float64), rows.output.reshape(-1)
        by_score = np.lexsort((-score, rows.query))
        by_relevance = np.lexsort((-relevance, rows.query))
        starts_query = np.diff(rows.query[by_score], prepend=-1) != 0
        starts = np.flatnonzero(starts_query)
        position = _number_within(starts, len(by_score))
        ties = np.flatnonzero(starts_query | (np.diff(score[by_score], prepend=0) != 0))
        for metric in self.metrics:
            name, cutoff = split_cutoff(metric)
            counted = position < (cutoff or len(by_score))
            ranking = _Ranking(relevance[by_score], relevance[by_relevance], position, counted, starts, ties)
            both = np.stack([_METRICS[name](ranking), np.ones(len(starts))], axis=1)
            yield Contribution(metric, first, np.broadcast_to(np.arange(2), both.shape), both)

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        """Return the mean of each metric over queries, (resamples,)."""
        return {name: divide(sums[name][:, 0], sums[name][:, 1]) for name in self.metrics}

    def compute_losses(self, rows: ScoredRows) -> Floats | None:
        """Return None: a single row has no loss."""
        return None

    def compute_curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        """Return no curves."""
        return {}


@dataclass(frozen=True)
class _Ranking:
    """The rows of all queries, query after query; arrays have shape (rows,).

    Attributes:
        relevance: Relevance in order of the score.
        ideal: Relevance in order of relevance.
        position: The position within the query, from 0 on.
        counted: Whether the position is within the metric's cutoff.
        starts: The number of the first row of each query (queries,).
        ties: The number of the first row of each group of rows with the same score in one query (groups,).
    """

    relevance: Floats
    ideal: Floats
    position: Integers
    counted: NDArray[np.bool_]
    starts: Integers
    ties: Integers

    @cached_property
    def expected_relevance(self) -> Floats:
        """The mean relevance at each position over all orders of ties."""
        sizes = self.tie_sizes
        return np.repeat(np.add.reduceat(self.relevance, self.ties) / sizes, sizes)

    @cached_property
    def first_relevant(self) -> Floats:
        """The probability over all orders of ties that the first relevant row of its query is at each position.

        Only the first group with relevant rows counts. The rows before a position in it are then all among those that
        are not relevant, whose probability is a ratio of binomial coefficients.
        """
        relevant = np.add.reduceat((self.relevance > 0).astype(np.int64), self.ties)
        candidates = np.flatnonzero(relevant)
        queries = np.searchsorted(self.starts, self.ties[candidates], side="right")
        first = candidates[np.unique(queries, return_index=True)[1]]
        counts = np.zeros_like(relevant)
        counts[first] = relevant[first]
        count, size = np.repeat(counts, self.tie_sizes), np.repeat(self.tie_sizes, self.tie_sizes)
        index = _number_within(self.ties, len(size))
        others = np.maximum(size - count - index, 0)
        log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, size.max(initial=0) + 1)))])
        none_before = np.exp(
            log_factorial[size - count] - log_factorial[others] + log_factorial[size - index] - log_factorial[size]
        )
        return np.where(index <= size - count, none_before * count / (size - index), 0)

    @cached_property
    def tie_sizes(self) -> Integers:
        """The number of rows of each group (groups,)."""
        return np.diff(self.ties, append=len(self.relevance))


def _number_within(starts: Integers, rows: int) -> Integers:
    """Return the number of each of so many rows within its group, from 0 on; groups begin at `starts`."""
    return np.arange(rows) - np.repeat(starts, np.diff(starts, append=rows))


def _ndcg(ranking: _Ranking) -> Floats:
    """Return the discounted cumulative gain over that of the ideal order (Järvelin and Kekäläinen, 2002)."""
    discount = ranking.counted / np.log2(ranking.position + 2)
    gain = np.add.reduceat(ranking.expected_relevance * discount, ranking.starts)
    return divide(gain, np.add.reduceat(ranking.ideal * discount, ranking.starts), empty=0)


def _mrr(ranking: _Ranking) -> Floats:
    """Return the mean of one over the position of the first relevant row, counted from 1, over all orders of ties."""
    probability = ranking.first_relevant * ranking.counted
    return np.add.reduceat(probability / (ranking.position + 1), ranking.starts)


def _hit_rate(ranking: _Ranking) -> Floats:
    """Return the fraction of all orders of ties with a relevant row within the cutoff."""
    return np.add.reduceat(ranking.first_relevant * ranking.counted, ranking.starts)


_METRICS = {"ndcg": _ndcg, "mrr": _mrr, "hit_rate": _hit_rate}
