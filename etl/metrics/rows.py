"""How many rows there are: of each slice, and in all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.etl.metrics.family import Scored, Sums, Tally, every_row


@dataclass(frozen=True)
class Rows:
    by_row: bool = True

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"rows": (1,)}

    def tallies(self, scored: Scored) -> Iterator[Tally]:
        rows = every_row(scored)
        yield Tally("rows", rows, np.zeros((len(rows), 1), np.int64), np.ones((len(rows), 1)))

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        return {"rows": sums["rows"][:, 0]}

    def losses(self, scored: Scored) -> None:
        return None

    def curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        return {}
