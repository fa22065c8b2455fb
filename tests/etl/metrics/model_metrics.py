"""Compute metrics of arrays the way the evaluate job does: in parts, over slices and buckets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.etl.metrics import build_families, classification, regression
from trainyard.etl.metrics.bins import SAMPLE_ROWS
from trainyard.etl.metrics.family import MetricFamily, OutputSpec, ScoredRows
from trainyard.etl.metrics.rows import RowCount
from trainyard.etl.metrics.scores import ModelMetrics
from trainyard.etl.metrics.sums import ALL_ROWS, BUCKETS, Slice, SumAccumulator, merge_sums, to_table


def compute_metrics(
    names: Sequence[str],
    spec: OutputSpec,
    output: NDArray[Any],
    truth: NDArray[Any],
    *,
    slice_by: NDArray[Any] | None = None,
    query: NDArray[Any] | None = None,
    cuts: Sequence[int] = (),
    seed: int = 0,
    confidence: float = 0.95,
    labeled: NDArray[np.bool_] | None = None,
    tasks: int = 2,
) -> ModelMetrics:
    """Return the metrics of one model, whose rows `tasks` accumulators add in batches that end at `cuts`.

    The sums of tasks are merged in an order that depends on the seed, some before the others. `slice_by` are the values
    of the column "of"; rows that are not `labeled` have no label.
    """
    families: tuple[MetricFamily, ...] = (RowCount(), *build_families(names, spec))
    if regression.needs_center(families):
        named = truth if labeled is None else truth[labeled]
        families = regression.center_labels(families, named[: regression.CENTER_ROWS])
    if classification.needs_edges(families):
        families = classification.set_edges(families, output[:SAMPLE_ROWS])
    accumulators = [SumAccumulator([families]) for _ in range(tasks)]
    random = np.random.default_rng(seed)
    buckets = random.integers(0, BUCKETS, len(truth))
    edges = sorted({0, *cuts, len(truth)})
    for start, end in itertools.pairwise(edges):
        accumulator, rows = accumulators[start % tasks], np.arange(start, end)
        groupings = [np.full(len(rows), accumulator.number_slice(ALL_ROWS))]
        if slice_by is not None:
            numbers = [accumulator.number_slice(Slice("of", str(value))) for value in slice_by[rows]]
            groupings.append(np.array(numbers))
        own = ScoredRows(output, truth, query).select(rows)
        own = own if labeled is None else replace(own, labeled=np.flatnonzero(labeled[rows]))
        accumulator.add(0, own, groupings, buckets[rows])
    tables = [accumulators[number].to_table() for number in random.permutation(tasks)]
    merged = to_table(merge_sums(tables[: tasks // 2]))
    return ModelMetrics(merge_sums([*tables[tasks // 2 :], merged]), 0, families, confidence)
