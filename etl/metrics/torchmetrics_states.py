"""Read and set the states of a metric of torchmetrics, and of the metrics that it combines or wraps.

This is the only module that uses private attributes of torchmetrics: `_reductions`, `_defaults`, `_apply` and
`_update_count`. They were checked against torchmetrics 1.9.0; look at `torchmetrics/metric.py` before another version
is used.

The states of a combination, such as `BinaryPrecision() + BinaryRecall()`, are those of its parts, which are its
submodules. The name of a state begins with the name of its submodule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor
    from torchmetrics import Metric

    from trainyard.etl.metrics.family import Floats


def use_float64(metric: Metric) -> None:
    """Convert the floating-point states, parameters and buffers to float64; `set_dtype` would convert integers too."""
    metric._apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)


def find_unsummed_state(metric: Metric) -> str | None:
    """Return the name of a state that is no tensor, or not reduced with a sum; None if there is none."""
    from torch import Tensor

    for part, name, state in _list_states(metric):
        is_sum = getattr(part._reductions[name], "__name__", "") == "dim_zero_sum"
        if not is_sum or not isinstance(part._defaults[name], Tensor):
            return state
    return None


def find_unsummed_wrapper(metric: Metric) -> str | None:
    """Return the type of a wrapper whose value does not follow from summed states, None if there is none.

    Such wrappers depend on single calls of `update` or `compute` (Running, MinMaxMetric, BootStrapper), or take or
    return dictionaries (MultitaskWrapper, ClasswiseWrapper).
    """
    from torchmetrics.wrappers import MetricInputTransformer, MultioutputWrapper
    from torchmetrics.wrappers.abstract import WrapperMetric

    for _, part in _list_parts(metric):
        if isinstance(part, WrapperMetric) and not isinstance(part, MetricInputTransformer | MultioutputWrapper):
            return type(part).__name__
    return None


def get_initial_states(metric: Metric) -> dict[str, Tensor]:
    """Return the initial value of each state by name; states that are sums are tensors."""
    return {state: part._defaults[name] for part, name, state in _list_states(metric)}  # type: ignore[misc]


def read_states(metric: Metric) -> dict[str, Floats]:
    """Return the current value of each state by name."""
    return {
        state: np.asarray(getattr(part, name).cpu().numpy(), np.float64) for part, name, state in _list_states(metric)
    }


def reset(metric: Metric) -> None:
    """Set each state to its initial value."""
    for _, part in _list_parts(metric):
        part.reset()


def set_states(metric: Metric, states: Mapping[str, Floats]) -> None:
    """Set the value of each state, and mark the metric as updated so that `compute()` does not warn."""
    import torch

    reset(metric)
    for part, name, state in _list_states(metric):
        initial: Tensor = part._defaults[name]  # type: ignore[assignment]
        setattr(part, name, torch.as_tensor(states[state], dtype=initial.dtype).reshape(initial.shape))
        part._update_count = 1


def _list_parts(metric: Metric) -> list[tuple[str, Metric]]:
    """Return the name of each part of a metric, and the part, once; the first is the metric itself.

    This is no generator: the hash of a metric depends on its states, so a part that was changed would occur again.
    """
    from torchmetrics import Metric

    return [(name, module) for name, module in metric.named_modules() if isinstance(module, Metric)]


def _list_states(metric: Metric) -> list[tuple[Metric, str, str]]:
    """Return each part that has a state, the name of the state in the part, and its name in the metric."""
    return [
        (part, name, f"{prefix}.{name}" if prefix else name)
        for prefix, part in _list_parts(metric)
        for name in part._defaults
    ]
