"""Metrics of ranking, as means over queries.

The output is the score of a row within its query, and the label is its relevance. A query without a relevant row
counts as 0. The gain of a row is its relevance, as in scikit-learn's and torchmetrics' NDCG; rows of equal score keep
their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
        """Yield the metrics of each query, on behalf of its highest-ranked row."""
        assert rows.query is not None
        relevance = rows.truth.astype(np.float64)
        by_score = np.lexsort((-rows.output.reshape(-1), rows.query))
        by_relevance = np.lexsort((-relevance, rows.query))
        starts = np.flatnonzero(np.diff(rows.query[by_score], prepend=-1))
        sizes = np.diff(starts, append=len(by_score))
        position = np.arange(len(by_score)) - np.repeat(starts, sizes)
        for metric in self.metrics:
            name, cutoff = split_cutoff(metric)
            ranking = _Ranking(
                relevance[by_score], relevance[by_relevance], position, position < (cutoff or len(by_score)), starts
            )
            both = np.stack([_METRICS[name](ranking), np.ones(len(starts))], axis=1)
            yield Contribution(metric, by_score[starts], np.broadcast_to(np.arange(2), both.shape), both)

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
    """

    relevance: Floats
    ideal: Floats
    position: Integers
    counted: NDArray[np.bool_]
    starts: Integers


def _ndcg(ranking: _Ranking) -> Floats:
    """Return the discounted cumulative gain over that of the ideal order (Järvelin and Kekäläinen, 2002)."""
    discount = ranking.counted / np.log2(ranking.position + 2)
    gain = np.add.reduceat(ranking.relevance * discount, ranking.starts)
    return divide(gain, np.add.reduceat(ranking.ideal * discount, ranking.starts), empty=0)


def _mrr(ranking: _Ranking) -> Floats:
    """Return one over the position of the first relevant row, counted from 1."""
    relevant = (ranking.relevance > 0) & ranking.counted
    return np.maximum.reduceat(np.where(relevant, 1 / (ranking.position + 1), 0), ranking.starts)


def _hit_rate(ranking: _Ranking) -> Floats:
    """Return 1 for queries with a relevant row within the cutoff, 0 for others."""
    relevant = (ranking.relevance > 0) & ranking.counted
    return np.maximum.reduceat(relevant.astype(np.float64), ranking.starts)


_METRICS = {"ndcg": _ndcg, "mrr": _mrr, "hit_rate": _hit_rate}
