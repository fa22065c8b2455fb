"""Metrics of arrays, by the way that the evaluate job takes: in parts, over slices and buckets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.etl.metrics import families
from trainyard.etl.metrics.family import Scored, Task
from trainyard.etl.metrics.rows import Rows
from trainyard.etl.metrics.scores import ALL, ModelMetrics
from trainyard.etl.metrics.sums import BUCKETS, Slice, SumAccumulator, merged


def model_metrics(
    names: Sequence[str],
    task: Task,
    output: NDArray[Any],
    truth: NDArray[Any],
    *,
    of: NDArray[Any] | None = None,
    query: NDArray[Any] | None = None,
    cuts: Sequence[int] = (),
    seed: int = 0,
    confidence: float = 0.95,
) -> ModelMetrics:
    """Of one model, its rows in two ledgers and in batches that end at `cuts`; `of` is the column "of", to slice by."""
    chosen = (Rows(), *families(names, task))
    ledgers = [SumAccumulator([chosen]), SumAccumulator([chosen])]
    buckets = np.random.default_rng(seed).integers(0, BUCKETS, len(truth))
    edges = sorted({0, *cuts, len(truth)})
    for start, end in itertools.pairwise(edges):
        ledger, rows = ledgers[start % 2], np.arange(start, end)
        groupings = [np.full(len(rows), ledger.number(ALL))]
        if of is not None:
            groupings.append(np.array([ledger.number(Slice("of", str(value))) for value in of[rows]]))
        ledger.add(0, Scored(output, truth, query).of(rows), groupings, buckets[rows])
    return ModelMetrics(merged(ledger.table() for ledger in ledgers), 0, chosen, confidence)
