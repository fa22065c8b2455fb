"""Metrics of ranking, means over queries. The output scores a row of its query; the label is its relevance.

A query without a relevant row counts as 0. The gain of a row is its relevance, as in scikit-learn's and
torchmetrics' NDCG; rows of equal score rank as they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import Family, Floats, Integers, Scored, Sums, Tally, Task, ratio
from trainyard.schemas.specs.metrics import cut


def family(asked: Sequence[str], task: Task) -> Family:
    """Raises TrainyardError when the network does not return one score a row."""
    if task.output not in ((), (1,)) or task.label:
        raise TrainyardError(
            f"metric {asked[0]!r} is one of ranking: the network must return one score a row, and the label be its "
            f"relevance; a row of the output has shape {list(task.output)}, one of the label {list(task.label)}."
        )
    return Ranking(tuple(asked))


@dataclass(frozen=True)
class Ranking:
    asked: tuple[str, ...]
    by_row: bool = True

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return dict.fromkeys(self.asked, (2,))

    def tallies(self, scored: Scored) -> Iterator[Tally]:
        assert scored.query is not None
        relevance = scored.truth.astype(np.float64)
        ranked = np.lexsort((-scored.output.reshape(-1), scored.query))
        ideal = np.lexsort((-relevance, scored.query))
        starts = np.flatnonzero(np.diff(scored.query[ranked], prepend=-1))
        sizes = np.diff(starts, append=len(ranked))
        place = np.arange(len(ranked)) - np.repeat(starts, sizes)
        for name in self.asked:
            kind, first = cut(name)
            seen = place < (first or len(ranked))
            values = _VALUES[kind](relevance[ranked], relevance[ideal], place, seen, starts)
            both = np.stack([values, np.ones(len(starts))], axis=1)
            yield Tally(name, ranked[starts], np.broadcast_to(np.arange(2), both.shape), both)

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        return {name: ratio(sums[name][:, 0], sums[name][:, 1]) for name in self.asked}

    def losses(self, scored: Scored) -> None:
        return None

    def curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        return {}


def _ndcg(ranked: Floats, ideal: Floats, place: Integers, seen: NDArray[np.bool_], starts: Integers) -> Floats:
    """Discounted cumulative gain over that of the best order, Järvelin and Kekäläinen, 2002."""
    discount = seen / np.log2(place + 2)
    return ratio(np.add.reduceat(ranked * discount, starts), np.add.reduceat(ideal * discount, starts), empty=0)


def _mrr(ranked: Floats, ideal: Floats, place: Integers, seen: NDArray[np.bool_], starts: Integers) -> Floats:
    """One over the rank of the first relevant row."""
    return np.maximum.reduceat(np.where((ranked > 0) & seen, 1 / (place + 1), 0), starts)


def _hit_rate(ranked: Floats, ideal: Floats, place: Integers, seen: NDArray[np.bool_], starts: Integers) -> Floats:
    """Whether a relevant row is among the first."""
    return np.maximum.reduceat(((ranked > 0) & seen).astype(np.float64), starts)


_VALUES = {"ndcg": _ndcg, "mrr": _mrr, "hit_rate": _hit_rate}
