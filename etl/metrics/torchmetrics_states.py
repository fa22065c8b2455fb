"""Read and set the states of a metric of torchmetrics.

This is the only module that uses private attributes of torchmetrics: `_reductions`, `_defaults`, `_apply` and
`_update_count`. They were checked against torchmetrics 1.9.0; look at `torchmetrics/metric.py` before another version
is used.
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
    """Return the name of a state that torchmetrics does not reduce with a sum, None if there is none."""
    for name, reduction in metric._reductions.items():
        if getattr(reduction, "__name__", "") != "dim_zero_sum":
            return name
    return None


def get_initial_states(metric: Metric) -> dict[str, Tensor]:
    """Return the initial value of each state by name; states that are sums are tensors."""
    return dict(metric._defaults)  # type: ignore[arg-type]


def read_states(metric: Metric) -> dict[str, Floats]:
    """Return the current value of each state by name."""
    return {name: np.asarray(getattr(metric, name).cpu().numpy(), np.float64) for name in metric._defaults}


def set_states(metric: Metric, states: Mapping[str, Floats]) -> None:
    """Set the value of each state, and mark the metric as updated so that `compute()` does not warn."""
    import torch

    metric.reset()
    for name, initial in get_initial_states(metric).items():
        setattr(metric, name, torch.as_tensor(states[name], dtype=initial.dtype).reshape(initial.shape))
    metric._update_count = 1
