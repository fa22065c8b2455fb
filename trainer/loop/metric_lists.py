"""Compute metrics of torchmetrics whose states are lists, of which workers may have different numbers of items.

torchmetrics gathers the lists item by item, and waits forever if a worker has had no rows of the last batch.

This is the only module of the trainer that uses private attributes of torchmetrics: `_defaults`, `_reductions` and
`_sync_dist`. They were checked against torchmetrics 1.9.0.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from torchmetrics import Metric

    from trainyard.trainer.world import World


def compute(metric: Metric, world: World) -> Any:
    """Return the value of a metric over the rows of all workers, which must all call this."""
    from torchmetrics import Metric

    for part in metric.modules() if world.size > 1 else ():
        if isinstance(part, Metric) and type(part)._sync_dist is Metric._sync_dist:
            part._sync_dist = partial(_sync, part, world)  # type: ignore[method-assign]
    return metric.compute()


def _sync(metric: Metric, world: World, *args: Any, **kwargs: Any) -> None:
    """Do what `Metric._sync_dist` does, with the lists of all workers in one message where they differ in length."""
    from torchmetrics import Metric

    lists = {name: state for name in metric._defaults if isinstance(state := getattr(metric, name), list)}
    lengths = {name: min(len(items), 1) if _is_joined(metric, name) else len(items) for name, items in lists.items()}
    if not lists or all(other == lengths for other in world.gather(lengths)):
        Metric._sync_dist(metric, *args, **kwargs)
        return
    by_rank = world.gather({name: [item.cpu() for item in items] for name, items in lists.items()})
    for name in lists:
        setattr(metric, name, [])
    Metric._sync_dist(metric, *args, **kwargs)
    for name in lists:
        items: list[Tensor] = [item.to(metric.device) for of_rank in by_rank for item in of_rank[name]]
        reduce: Any = metric._reductions[name]
        setattr(metric, name, reduce(items) if reduce and items else items)


def _is_joined(metric: Metric, name: str) -> bool:
    """Return whether torchmetrics sends a list as one tensor."""
    return getattr(metric._reductions[name], "__name__", "") == "dim_zero_cat"
