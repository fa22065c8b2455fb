"""Evaluate the network on the validation split."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from trainyard.errors import TrainyardError
from trainyard.schemas.runs.phases import Phase
from trainyard.trainer.data.loader import Columns, Loader
from trainyard.trainer.loop import metric_lists
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.model.losses import compute_loss, explain_errors, sum_weights
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Batch, Recipe
from trainyard.trainer.world import World

_HALF_PRECISION = (torch.bfloat16, torch.float16)


def evaluate(
    loader: Loader,
    epoch: int,
    *,
    recipe: Recipe,
    network: Network,
    world: World,
    phases: Phases,
    precision: str,
    sharded: bool,
    unread: Collection[str],
    weighs_labels: bool,
) -> dict[str, float]:
    """Return `validation_loss` and the recipe's metrics over a split, merged over all workers.

    Args:
        loader: The split.
        epoch: The number of the epoch.
        recipe: The recipe.
        network: The network, on the device of this worker.
        world: The workers.
        phases: The phases of this worker.
        precision: "float32", "bfloat16" or "float16".
        sharded: Whether every forward pass is a collective, in which workers without rows must take part.
        unread: The columns of the dataset that batches do not have.
        weighs_labels: Whether batches count by the weights of their labels, and not by their rows.
    """
    metrics = {name: metric.to(world.device) for name, metric in recipe.metrics_by_name.items()}
    loss_sum = torch.zeros((), dtype=torch.float64, device=world.device)
    weight_sum = torch.zeros_like(loss_sum)
    network.eval()
    with torch.no_grad(), autocast(world.device, precision):
        for batch in loader.epoch(epoch):
            phases.current.enter(Phase.VALIDATE)
            if batch.rows == 0 and not sharded:
                continue
            columns = to_device(batch.columns, world.device)
            output: Any = None
            mean: Tensor | None = None
            with explain_errors(network, unread):
                if recipe.step:  # a copy for metrics: it may change the columns in place
                    copied = {name: column.clone() for name, column in columns.items()} if metrics else columns
                    mean = _take_step(recipe.step, network, copied)
                if mean is None or metrics:
                    output = network(columns)
                if mean is None:
                    mean = compute_loss(recipe, output, columns)
            if batch.rows == 0:
                continue
            weights = sum_weights(recipe, columns) if weighs_labels else None
            weight: float | Tensor = batch.rows if weights is None else weights
            weight_sum += weight
            loss_sum += mean.double() * weight
            with torch.autocast(world.device.type, enabled=False):
                output = _widen(output)
                for metric in metrics.values():
                    metric.update(output, columns[recipe.label or ""])
    loss, total = (sum_over_workers(value, world, phases) for value in (loss_sum, weight_sum))
    results = {"validation_loss": loss / (total or 1)}
    for name, metric in metrics.items():
        results[name] = _to_number(name, metric_lists.compute(metric, world))
        metric.reset()
    return results


def _take_step(step: Callable[[nn.Module, Batch], Tensor], network: Network, columns: Batch) -> Tensor:
    try:
        return step(network, columns)
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
        raise TrainyardError(
            "the recipe's step= computes gradients, but validation calls it without them. Compute them in "
            "`with torch.enable_grad():`."
        ) from error


def sum_over_workers(value: Tensor, world: World, phases: Phases) -> float:
    """Return the sum of one value over all workers; waiting for other workers is a phase of its own."""
    own = value.item()  # a GPU computes it only now, which is not waiting for others
    if world.size == 1:
        return own
    with phases.waiting():
        return world.sum(value.clone()).item()


def _widen(output: Any) -> Any:
    """Return an output with its tensors in half precision as float32: in bfloat16, a sigmoid maps many logits to 1."""
    return tree_map_only(Tensor, lambda part: part.float() if part.dtype in _HALF_PRECISION else part, output)


def _to_number(name: str, value: Any) -> float:
    if isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1):
        return float(value)
    described = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
    raise TrainyardError(
        f"metric {name!r} of the recipe is {described}; an epoch has one number of each metric. Set, for example, "
        "average='macro', or write a metric for each of its parts."
    )


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """Return the context of a forward pass in a precision."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=getattr(torch, precision))


def to_device(columns: Columns, device: torch.device) -> Columns:
    """Return the columns of a batch on a device."""
    if device.type == "cpu":
        return columns
    return {name: column.to(device, non_blocking=True) for name, column in columns.items()}
