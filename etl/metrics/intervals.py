"""Intervals by the bootstrap: metrics of the dataset with its buckets drawn again, with replacement.

Rows are in buckets by chance, so buckets are small datasets that know nothing of each other, and drawing those costs
neither another pass nor memory for rows (Chamandy et al., Estimating Uncertainty for Massive Data Streams, 2012).
Models that are scored in the same pass are drawn alike: what differs between them is then not the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.etl.metrics.family import Family, Floats
from trainyard.etl.metrics.sums import BUCKETS

DRAWS = 1000
_AT_ONCE = 1 << 19


def whole(family: Family, sums: Mapping[str, Floats]) -> dict[str, Any]:
    """The metrics over all buckets: floats, None where there is no value, nested lists of a matrix."""
    found = family.compute({name: values.sum(axis=0, keepdims=True) for name, values in sums.items()})
    return {name: _plain(values[0]) for name, values in found.items()}


def drawn(family: Family, sums: Mapping[str, Floats]) -> dict[str, Floats]:
    """Of each metric that is a number its values (DRAWS,) in the same DRAWS resamples for any family and model."""
    if not family.by_row:
        return {}
    size = max(values[0].size for values in sums.values())
    step = max(_AT_ONCE // size, 1)
    parts = []
    for start in range(0, DRAWS, step):
        weights = _draws()[start : start + step]
        parts.append(family.compute({name: np.tensordot(weights, values, 1) for name, values in sums.items()}))
    numbers = [name for name, values in parts[0].items() if values.ndim == 1]
    return {name: np.concatenate([part[name] for part in parts]) for name in numbers}


def interval(values: Floats, confidence: float) -> tuple[float, float] | None:
    """The middle `confidence` of the values; None when there are none."""
    known = values[np.isfinite(values)]
    if not known.size:
        return None
    low, high = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


@lru_cache(maxsize=1)
def _draws() -> Floats:
    """How often each bucket is drawn: (DRAWS, BUCKETS)."""
    even = np.full(BUCKETS, 1 / BUCKETS)
    return np.random.default_rng(0).multinomial(BUCKETS, even, DRAWS).astype(np.float64)


def _plain(value: NDArray[Any]) -> Any:
    if value.ndim:
        return value.tolist()
    return value.item() if np.isfinite(value) else None
