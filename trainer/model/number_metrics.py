"""Metrics of numbers, as evaluations compute them: in float64, and around the mean of the labels.

In float32, sums of squares of labels whose mean is a thousand times their standard deviation have no correct digit.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torchmetrics import Metric

_EPSILON = 8 * torch.finfo(torch.float64).eps
"""Deviations from the mean that are rounding errors, relative to the mean."""


class NumberMetric(Metric):
    """A metric of outputs and labels, each (rows,) or (rows, numbers); of several numbers it is the mean over them.

    Args:
        name: "mae", "mse", "rmse" or "r2". R2 has no value (NaN) if all labels are equal.
        is_logarithm: Whether the output is the logarithm of what the label is compared with.
    """

    full_state_update = True
    moments: list[Tensor] | Tensor

    def __init__(self, name: str, *, is_logarithm: bool = False) -> None:
        super().__init__()
        self.name, self.is_logarithm = name, is_logarithm
        self.add_state("moments", [], dist_reduce_fx="cat")  # a worker without rows does not know how many numbers

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        """Whether more is better."""
        return self.name == "r2"

    def update(self, output: Tensor, label: Tensor) -> None:
        """Add the rows of a batch."""
        if output.numel() != label.numel():
            raise ValueError(f"an output of shape {list(output.shape)} has other numbers than {list(label.shape)}")
        label = label.double().reshape(len(label), -1)
        output = output.double().reshape(label.shape)
        error = (output.exp() if self.is_logarithm else output) - label
        mean = label.mean(dim=0)
        sums = [error.abs().sum(dim=0), (error**2).sum(dim=0), mean, ((label - mean) ** 2).sum(dim=0)]
        own = torch.stack([torch.full_like(mean, len(label)), *sums])
        self.moments = [merge_moments(torch.stack([*self._list_parts(), own]))[None]]

    def compute(self) -> Tensor:
        """Return the metric over all rows."""
        parts = self._list_parts()
        return _METRICS[self.name](merge_moments(torch.stack(parts))).mean() if parts else torch.tensor(torch.nan)

    def _list_parts(self) -> list[Tensor]:
        """Return the moments of each worker, (5, numbers), or of this one while they are not gathered."""
        gathered = self.moments if isinstance(self.moments, Tensor) else [one for part in self.moments for one in part]
        return list(gathered)


def merge_moments(parts: Tensor) -> Tensor:
    """Return the moments of the rows of several parts together, (5, numbers).

    T. F. Chan, G. H. Golub, R. J. LeVeque: "Updating formulae and a pairwise algorithm for computing sample variances",
    1979.

    Args:
        parts: Of each part: rows, the sum of the errors' sizes, that of their squares, the mean of the labels, and the
            sum of the squares of their distances from it, (parts, 5, numbers).
    """
    rows, sizes, squares, means, spreads = parts.unbind(dim=1)
    total = rows.sum(dim=0)
    shares = rows / total.clamp(min=1)
    mean = means[0] + (shares * (means - means[0])).sum(dim=0)  # a mean of equal labels is not rounded
    spread = (spreads + rows * (means - mean) ** 2).sum(dim=0)
    return torch.stack([total, sizes.sum(dim=0), squares.sum(dim=0), mean, spread])


def _compute_r2(moments: Tensor) -> Tensor:
    rows, _, squares, mean, spread = moments
    is_equal = spread <= rows * (_EPSILON * mean) ** 2
    return torch.where(is_equal, torch.nan, 1 - squares / spread)


_METRICS: dict[str, Callable[[Tensor], Tensor]] = {
    "mae": lambda moments: moments[1] / moments[0],
    "mse": lambda moments: moments[2] / moments[0],
    "rmse": lambda moments: (moments[2] / moments[0]).sqrt(),
    "r2": _compute_r2,
}
