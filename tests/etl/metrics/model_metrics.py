"""Compute metrics of arrays the way the evaluate job does: in parts, over slices and buckets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.etl.metrics import build_families, classification, regression
from trainyard.etl.metrics.bins import SAMPLE_ROWS
from trainyard.etl.metrics.family import MetricFamily, OutputSpec, ScoredRows
from trainyard.etl.metrics.rows import RowCount
from trainyard.etl.metrics.scores import ModelMetrics
from trainyard.etl.metrics.sums import ALL_ROWS, BUCKETS, Slice, SumAccumulator, merge_sums


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
) -> ModelMetrics:
    """Return the metrics of one model, whose rows two accumulators add in batches that end at `cuts`.

    `slice_by` are the values of the column "of".
    """
    families: tuple[MetricFamily, ...] = (RowCount(), *build_families(names, spec))
    if regression.needs_center(families):
        families = regression.center_labels(families, truth[: regression.CENTER_ROWS])
    if classification.needs_edges(families):
        families = classification.set_edges(families, output[:SAMPLE_ROWS])
    accumulators = [SumAccumulator([families]), SumAccumulator([families])]
    buckets = np.random.default_rng(seed).integers(0, BUCKETS, len(truth))
    edges = sorted({0, *cuts, len(truth)})
    for start, end in itertools.pairwise(edges):
        accumulator, rows = accumulators[start % 2], np.arange(start, end)
        groupings = [np.full(len(rows), accumulator.number_slice(ALL_ROWS))]
        if slice_by is not None:
            numbers = [accumulator.number_slice(Slice("of", str(value))) for value in slice_by[rows]]
            groupings.append(np.array(numbers))
        accumulator.add(0, ScoredRows(output, truth, query).select(rows), groupings, buckets[rows])
    sums = merge_sums(accumulator.to_table() for accumulator in accumulators)
    return ModelMetrics(sums, 0, families, confidence)
