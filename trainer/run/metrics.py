"""The metrics of an epoch that a loop reports: means of rows, which are merged over the workers, and single values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from trainyard.errors import TrainyardError
from trainyard.trainer.measuring.progress import SPEED_METRICS
from trainyard.trainer.world import World

RESERVED = ("epoch", *SPEED_METRICS)
"""The names of the figures that every epoch has."""


class EpochMetrics:
    """Collect what a loop reports in an epoch. Nothing is exchanged until the workers `merge` it together.

    Args:
        world: The workers.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._sums: dict[str, Tensor] = {}
        self._rows: dict[str, int] = {}
        self._values: dict[str, float] = {}

    def add(self, name: str, mean: Tensor | float, rows: int) -> None:
        """Add the mean of some rows of this worker to the mean of the epoch.

        Raises:
            TrainyardError: The name is reserved, or the mean is no single number.
        """
        _check(name, mean)
        if rows == 0:
            return
        value = mean.detach() if isinstance(mean, Tensor) else torch.tensor(mean)
        if name not in self._sums:
            self._sums[name], self._rows[name] = torch.zeros((), dtype=torch.float64, device=value.device), 0
        self._sums[name] += value.double().reshape(()).to(self._sums[name].device) * rows
        self._rows[name] += rows

    def set(self, name: str, value: Tensor | float) -> None:
        """Set a value of the epoch; that of rank 0 counts."""
        _check(name, value)
        self._values[name] = float(value)

    def read_own(self, name: str) -> float:
        """Return the mean that this worker has of the epoch so far; NaN if it has none."""
        return self._sums[name].item() / self._rows[name] if name in self._sums else math.nan

    @property
    def first(self) -> str | None:
        """The name of the first mean that was reported: "loss", if there is one."""
        return "loss" if "loss" in self._sums else next(iter(self._sums), None)

    def read_state(self) -> dict[str, Any]:
        """Return the sums over all workers, for a checkpoint. All workers must call this."""
        own = {name: (total.item(), self._rows[name]) for name, total in self._sums.items()}
        gathered = self._world.gather((own, self._values))
        names = dict.fromkeys(name for sums, _ in gathered for name in sums)
        sums = {
            name: [sum(part[name][number] for part, _ in gathered if name in part) for number in (0, 1)]
            for name in names
        }
        return {"sums": sums, "values": gathered[0][1]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `read_state` returned: rank 0 has the sums of all workers."""
        if self._world.is_main:
            for name, (total, rows) in state["sums"].items():
                self._sums[name] = torch.tensor(total, dtype=torch.float64, device=self._world.device)
                self._rows[name] = int(rows)
        self._values = dict(state["values"])

    def merge(self) -> dict[str, float]:
        """Return the metrics of the epoch, the same on all workers, and begin the next one."""
        state = self.read_state()
        self._sums, self._rows, self._values = {}, {}, {}
        means = {name: total / (rows or 1) for name, (total, rows) in state["sums"].items()}
        return {**means, **state["values"]}


def _check(name: str, value: Any) -> None:
    if name in RESERVED:
        raise TrainyardError(f"report({name}=...): each epoch has {name!r} already; choose another name.")
    if isinstance(value, Tensor) and value.numel() != 1:
        raise TrainyardError(
            f"report({name}=...) got a tensor of shape {list(value.shape)}; write its mean over the rows."
        )
