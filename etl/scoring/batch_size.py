"""Choose how many rows a network is applied to at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from trainyard.etl.scoring.arrays import Columns


class BatchSizeTuner:
    """The number of rows that a network is applied to at a time.

    Unless it is fixed, it is doubled until that no longer makes the network faster.

    Args:
        fixed: The number of rows to use, None to find it.
    """

    FIRST, MAX_ROWS = 64, 1 << 16
    MEASUREMENTS = 2
    """The number of batches that are measured for each size."""
    PATIENCE, MIN_GAIN = 2, 1.05
    """The search ends after so many sizes in a row that are not faster by this factor."""

    def __init__(self, fixed: int | None = None) -> None:
        self.rows = fixed or self.FIRST
        self._done = fixed is not None
        self._best = (0.0, self.rows)
        self._rates: list[float] = []
        self._sizes_without_gain = 0

    def apply(
        self, function: Callable[[Columns], Mapping[str, NDArray[Any]]], columns: Columns
    ) -> dict[str, NDArray[Any]]:
        """Apply `function` to all rows, some at a time, and return its concatenated outputs.

        When memory is exhausted, the number of rows is halved and fixed.

        Raises:
            torch.OutOfMemoryError: A single row does not fit.
        """
        import torch

        total, start, outputs = len(next(iter(columns.values()))), 0, []
        while start < total:
            size = min(self.rows, total - start)
            started = perf_counter()
            try:
                outputs.append(function({name: values[start : start + size] for name, values in columns.items()}))
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
                self.rows, self._done = max(size // 2, 1), True
                continue
            self.record(size, perf_counter() - started)
            start += size
        return {name: np.concatenate([output[name] for output in outputs]) for name in outputs[0]}

    def record(self, rows: int, seconds: float) -> None:
        """Record a measurement; one of fewer rows than the current size is ignored."""
        if self._done or rows < self.rows:
            return
        self._rates.append(rows / seconds)
        if len(self._rates) < self.MEASUREMENTS:
            return
        rate, self._rates = max(self._rates), []
        if rate > self._best[0] * self.MIN_GAIN:
            self._best, self._sizes_without_gain = (rate, self.rows), 0
        else:
            self._sizes_without_gain += 1
        if self._sizes_without_gain == self.PATIENCE or self.rows == self.MAX_ROWS:
            self.rows, self._done = self._best[1], True
        else:
            self.rows *= 2
