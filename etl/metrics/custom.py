"""Metrics that users provide: any metric of torchmetrics whose states are sums."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainyard.errors import TrainyardError
from trainyard.etl.metrics import torchmetrics_states
from trainyard.etl.metrics.family import Contribution, Floats, ScoredRows, Sums

if TYPE_CHECKING:
    from torch import Tensor
    from torchmetrics import Metric

Family = TypeVar("Family", bound="CustomMetric")


def build_family(path: str) -> CustomMetric:
    """Return the family of the metric that the function at `path`, `module:name`, returns.

    Raises:
        TrainyardError: It cannot be imported or called, returns no metric, or as of `check_family`.
    """
    return check_family(CustomMetric(path))


def check_family(family: Family) -> Family:
    """Return a family whose metric can be computed from sums.

    Raises:
        TrainyardError: The metric's value does not follow from states that are sums, or is not a tensor.
    """
    path = family.name
    if wrapper := torchmetrics_states.find_unsummed_wrapper(family.metric):
        raise TrainyardError(
            f"metric {path!r} contains a {wrapper}, whose value cannot be computed from sums over the parts of a "
            "dataset. Return the metric that it wraps; the wrappers that may be used are MetricInputTransformer and "
            "MultioutputWrapper."
        )
    if state := torchmetrics_states.find_unsummed_state(family.metric):
        raise TrainyardError(
            f"metric {path!r}: state {state!r} is not a sum, so it cannot be merged over the parts of a dataset. "
            "Set dist_reduce_fx='sum', and a tensor as its default; areas under curves of torchmetrics are sums if "
            "thresholds= is set, such as BinaryAUROC(thresholds=100)."
        )
    if not family.shapes:
        raise TrainyardError(
            f"metric {path!r} has no states, so it cannot be merged over the parts of a dataset. Add its sums with "
            "add_state(name, default, dist_reduce_fx='sum')."
        )
    family.check_value()
    return family


class CustomMetric:
    """The family of one metric of torchmetrics, which is updated with the rows of each slice. It has no interval.

    Many metrics are differences of sums, which have few correct digits in float32; they are computed in float64.
    """

    by_row = False

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """The name of the metric."""
        return self._path

    def __reduce__(self) -> tuple[type[CustomMetric], tuple[str]]:
        return CustomMetric, (self._path,)

    @cached_property
    def metric(self) -> Metric:
        """The metric that the user's function returns, created in each process."""
        from torchmetrics import Metric

        module, name = self._path.split(":")
        try:
            metric = getattr(importlib.import_module(module), name)()
        except Exception as error:
            raise TrainyardError(
                f"metric {self._path!r} cannot be created: {type(error).__name__}: {error}."
            ) from error
        if not isinstance(metric, Metric):
            raise TrainyardError(
                f"metric {self._path!r} returned a value of type {type(metric).__name__}; return a torchmetrics.Metric."
            )
        torchmetrics_states.use_float64(metric)
        return metric

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of each state."""
        initial_states = torchmetrics_states.get_initial_states(self.metric)
        return {self._name_statistic(name): tuple(initial.shape) for name, initial in initial_states.items()}

    def check_value(self) -> None:
        """Check the type of the metric's value without rows. A metric that raises an error without rows is not checked.

        Raises:
            TrainyardError: The value is neither a tensor nor a number.
        """
        value: Any = 0
        with suppress(Exception), warnings.catch_warnings(action="ignore"):
            value = self._compute_value({name: np.zeros((1, *shape)) for name, shape in self.shapes.items()})
        self._to_array(value)

    def contribute(self, rows: ScoredRows) -> Iterator[Contribution]:
        """Yield the states after an update with all rows, on behalf of the first row."""
        torchmetrics_states.reset(self.metric)
        self.metric.update(_to_tensor(rows.output), _to_tensor(rows.truth))
        for name, state in torchmetrics_states.read_states(self.metric).items():
            values = state.reshape(1, -1)
            yield Contribution(self._name_statistic(name), np.zeros(1, np.int64), np.arange(values.size)[None], values)

    def compute(self, sums: Sums) -> dict[str, NDArray[Any]]:
        """Return the metric over all buckets, (1, ...).

        Raises:
            TrainyardError: The value is neither a tensor nor a number.
        """
        return {self._path: self._to_array(self._compute_value(sums))[None]}

    def compute_losses(self, rows: ScoredRows) -> Floats | None:
        """Return None: a single row has no loss."""
        return None

    def compute_curves(self, sums: Sums) -> dict[str, list[list[float]]]:
        """Return no curves."""
        return {}

    def _compute_value(self, sums: Sums) -> Any:
        names = torchmetrics_states.get_initial_states(self.metric)
        states = {name: sums[self._name_statistic(name)].sum(axis=0) for name in names}
        torchmetrics_states.set_states(self.metric, states)
        return self.metric.compute()

    def _to_array(self, value: Any) -> NDArray[Any]:
        import torch

        if not isinstance(value, torch.Tensor | float | int):
            raise TrainyardError(
                f"metric {self._path!r} computes a value of type {type(value).__name__}; return a metric whose "
                "compute() returns a tensor: one number, or an array of numbers."
            )
        return torch.as_tensor(value).cpu().numpy()

    def _name_statistic(self, state: str) -> str:
        return f"{self._path}/{state}"


def _to_tensor(values: NDArray[Any]) -> Tensor:
    """Return an array as a tensor, floating-point numbers in float64."""
    import torch

    tensor = torch.from_numpy(values)
    return tensor.double() if tensor.is_floating_point() else tensor
