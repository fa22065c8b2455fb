"""Choose how many rows a network is given at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.etl.scoring.inputs import Columns


class Pace:
    """How many rows a network is given at once: `fixed`, or twice as many for as long as that makes it faster."""

    FIRST, MOST, TRIES, FASTER = 64, 1 << 16, 2, 1.05

    def __init__(self, fixed: int | None = None) -> None:
        self.rows = fixed or self.FIRST
        self._settled = fixed is not None
        self._best = (0.0, self.rows)
        self._rates: list[float] = []
        self._in_vain = 0

    def over(self, apply: Callable[[Columns], Mapping[str, NDArray[Any]]], columns: Columns) -> dict[str, NDArray[Any]]:
        """`apply` to all rows, a few at a time. Gives fewer at a time when memory is short."""
        import torch

        total, at, parts = len(next(iter(columns.values()))), 0, []
        while at < total:
            size = min(self.rows, total - at)
            started = perf_counter()
            try:
                parts.append(apply({name: values[at : at + size] for name, values in columns.items()}))
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
                self.rows, self._settled = max(size // 2, 1), True
                continue
            self.took(size, perf_counter() - started)
            at += size
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def took(self, rows: int, seconds: float) -> None:
        """Learn from so many rows; fewer than were to be given say nothing."""
        if self._settled or rows < self.rows:
            return
        self._rates.append(rows / seconds)
        if len(self._rates) < self.TRIES:
            return
        rate, self._rates = max(self._rates), []
        if rate > self._best[0] * self.FASTER:
            self._best, self._in_vain = (rate, self.rows), 0
        else:
            self._in_vain += 1
        if self._in_vain == self.TRIES or self.rows == self.MOST:
            self.rows, self._settled = self._best[1], True
        else:
            self.rows *= 2
