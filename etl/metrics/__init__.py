"""Metrics as functions of sums.

Metrics of one family share their sums, so that ten metrics cost little more than one. Sums are kept for each slice of
the rows, and for each bucket, to which rows are assigned at random: metrics of slices and confidence intervals follow
from the same pass over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.errors import TrainyardError
from trainyard.etl.metrics import classification, custom, ranking, regression
from trainyard.etl.metrics.family import MetricFamily, OutputSpec
from trainyard.schemas.specs import metrics as names


def build_families(metrics: Sequence[str], spec: OutputSpec) -> list[MetricFamily]:
    """Return the families that compute `metrics` for a model's output, each metric once.

    Raises:
        TrainyardError: A metric cannot be computed from such an output and label.
    """
    metrics = tuple(dict.fromkeys(metrics))
    families: list[MetricFamily] = []
    if requested := [name for name in metrics if name in names.CLASSIFICATION]:
        families.append(classification.build_family(requested, spec))
    if requested := [name for name in metrics if name in names.REGRESSION]:
        families.append(regression.build_family(requested, spec))
    if requested := [name for name in metrics if names.split_cutoff(name)[0] in names.RANKING]:
        families.append(ranking.build_family(requested, spec))
    families += [custom.build_family(name) for name in metrics if names.is_custom(name)]
    if not families:
        raise TrainyardError(f"metrics={list(metrics)} contains no known metric.")
    return families
