"""Metrics as functions of sums: what rows add to them, and what follows from the sums.

A family of metrics shares its sums, so that ten metrics cost little more than one. Sums are kept by slice and by
bucket, of which each row has one by chance: from those follow the metrics of slices, and their intervals.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainyard.errors import TrainyardError
from trainyard.etl.metrics import classification, custom, ranking, regression
from trainyard.etl.metrics.family import Family, Task
from trainyard.schemas.specs import metrics as names


def families(asked: Sequence[str], task: Task) -> list[Family]:
    """The families that compute the metrics `asked` for. Raises TrainyardError when one does not suit the model."""
    found: list[Family] = []
    if of_classes := [name for name in asked if name in names.CLASSIFICATION]:
        found.append(classification.family(of_classes, task))
    if of_numbers := [name for name in asked if name in names.REGRESSION]:
        found.append(regression.family(of_numbers, task))
    if of_ranks := [name for name in asked if names.cut(name)[0] in names.RANKING]:
        found.append(ranking.family(of_ranks, task))
    found += [custom.family(name) for name in asked if names.is_custom(name)]
    if not found:
        raise TrainyardError(f"metrics={list(asked)} names no metric.")
    return found
