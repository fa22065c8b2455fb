"""Metrics of the user's: any of torchmetrics whose states are sums."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import Floats, Scored, Sums, Tally

if TYPE_CHECKING:
    from torch import Tensor
    from torchmetrics import Metric


def family(path: str) -> Custom:
    """Raises TrainyardError when `path` names no function that makes such a metric."""
    found = Custom(path)
    for state, reduction in found.metric._reductions.items():
        if getattr(reduction, "__name__", "") != "dim_zero_sum":
            raise TrainyardError(
                f"metric {path!r}: state {state!r} is not a sum, so it cannot be merged over the parts of a dataset. "
                "Give it dist_reduce_fx='sum'; curves of torchmetrics are sums with thresholds=."
            )
    return found


class Custom:
    """Applied to the rows of each slice apart. It has no interval."""

    by_row = False

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[type[Custom], tuple[str]]:
        return Custom, (self._path,)

    @cached_property
    def metric(self) -> Metric:
        """A fresh one, made by the user's function."""
        from torchmetrics import Metric

        module, name = self._path.split(":")
        try:
            made = getattr(importlib.import_module(module), name)()
        except Exception as error:
            raise TrainyardError(f"metric {self._path!r} cannot be made: {type(error).__name__}: {error}.") from error
        if not isinstance(made, Metric):
            raise TrainyardError(f"metric {self._path!r} returned a {type(made).__name__}; return one of torchmetrics.")
        return made

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {self._statistic(state): tuple(start.shape) for state, start in self._states.items()}

    def tallies(self, scored: Scored) -> Iterator[Tally]:
        import torch

        self.metric.reset()
        self.metric.update(torch.from_numpy(scored.output), torch.from_numpy(scored.truth))
        for state in self._states:
            values = np.asarray(getattr(self.metric, state).cpu().numpy(), np.float64).reshape(1, -1)
            yield Tally(self._statistic(state), np.zeros(1, np.int64), np.arange(values.size)[None], values)

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        import torch

        self.metric.reset()
        for state, start in self._states.items():
            total = torch.from_numpy(sums[self._statistic(state)].sum(axis=0)).to(start.dtype)
            setattr(self.metric, state, total.reshape(start.shape))
        self.metric._update_count = 1
        return {self._path: np.asarray(self.metric.compute().cpu().numpy())[None]}

    def losses(self, scored: Scored) -> Floats | None:
        return None

    def curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        return {}

    @property
    def _states(self) -> dict[str, Tensor]:
        """What each state starts from; none is a list, for those are no sums."""
        return dict(self.metric._defaults)  # type: ignore[arg-type]

    def _statistic(self, state: str) -> str:
        return f"{self._path}/{state}"
