"""Count the rows, in all and in each slice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.etl.metrics.family import Contribution, Floats, ScoredRows, Sums, number_rows


@dataclass(frozen=True)
class RowCount:
    """The family of the number of rows."""

    by_row: bool = True

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """One count."""
        return {"rows": (1,)}

    def contribute(self, rows: ScoredRows) -> Iterator[Contribution]:
        """Yield a one for each row."""
        numbers = number_rows(rows)
        yield Contribution("rows", numbers, np.zeros((len(numbers), 1), np.int64), np.ones((len(numbers), 1)))

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        """Return the number of rows."""
        return {"rows": sums["rows"][:, 0]}

    def compute_losses(self, rows: ScoredRows) -> Floats | None:
        """Return None: a count has no loss."""
        return None

    def compute_curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        """Return no curves."""
        return {}
