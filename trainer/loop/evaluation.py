"""Evaluate the network on the validation split."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from trainyard.errors import TrainyardError
from trainyard.schemas.heads import name_metric
from trainyard.schemas.runs.phases import Phase
from trainyard.trainer.data.loader import Columns, Loader
from trainyard.trainer.loop import metric_lists
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.model.heads import Head
from trainyard.trainer.model.losses import explain_errors
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.objective import Objective, select_labeled
from trainyard.trainer.model.recipe import Batch
from trainyard.trainer.world import World

_HALF_PRECISION = (torch.bfloat16, torch.float16)


def evaluate(
    loader: Loader,
    epoch: int,
    *,
    objective: Objective,
    network: Network,
    world: World,
    phases: Phases,
    precision: str,
    sharded: bool,
    unread: Collection[str],
) -> dict[str, float]:
    """Return `validation_loss` and the metrics of the recipe's heads over a split, merged over all workers.

    Args:
        loader: The split.
        epoch: The number of the epoch.
        objective: The losses of the recipe's heads.
        network: The network, on the device of this worker.
        world: The workers.
        phases: The phases of this worker.
        precision: "float32", "bfloat16" or "float16".
        sharded: Whether every forward pass is a collective, in which workers without rows must take part.
        unread: The columns of the dataset that batches do not have.
    """
    recipe, heads = objective.recipe, len(objective.heads)
    metrics = [_HeadMetrics(head, recipe.heads_by_name[head], objective, world) for head in recipe.labels]
    loss_sums = torch.zeros(heads, dtype=torch.float64, device=world.device)
    weight_sums = torch.zeros_like(loss_sums)
    needs_output = any(each.metrics for each in metrics)
    network.eval()
    with torch.no_grad(), autocast(world.device, precision):
        for batch in loader.epoch(epoch):
            phases.current.enter(Phase.VALIDATE)
            if batch.rows == 0 and not sharded:
                continue
            columns = to_device(batch.columns, world.device)
            output: Any = None
            losses: list[Tensor] = []
            with explain_errors(network, unread):
                if recipe.step:  # a copy for metrics: it may change the columns in place
                    copied = {name: column.clone() for name, column in columns.items()} if needs_output else columns
                    losses = [_take_step(recipe.step, network, copied)]
                if not losses or needs_output:
                    output = network(columns)
                losses = losses or objective.compute_losses(output, columns)
            if batch.rows == 0:
                continue
            for number, (loss, weight) in enumerate(zip(losses, objective.weigh(batch.rows, columns), strict=True)):
                weight_sums[number] += weight
                loss_sums[number] += loss.double() * weight
            if needs_output:
                with torch.autocast(world.device.type, enabled=False):
                    outputs = recipe.split_output(_widen(output))
                    for of_head in metrics:
                        of_head.update(outputs[of_head.name], columns)
    sums, weights = (sum_over_workers(value, world, phases) for value in (loss_sums, weight_sums))
    results = objective.name_losses("validation_loss", sums, weights)
    for of_head in metrics:
        results |= of_head.compute(phases)
    return results


class _HeadMetrics:
    """The metrics of a head, over the rows that have its label."""

    def __init__(self, name: str, head: Head, objective: Objective, world: World) -> None:
        self.name, self._label, self._world = name, head.label or "", world
        self.metrics = {key: metric.to(world.device) for key, metric in head.metrics_by_name.items()}
        self._missing = objective.missing.get(name)
        self._labels = torch.zeros((), dtype=torch.float64, device=world.device)

    def update(self, output: Any, columns: Batch) -> None:
        """Add the rows of a batch."""
        label = columns[self._label]
        if self._missing is not None:
            output, label = select_labeled(output, label, self._missing)
            self._labels += len(label)
        for metric in self.metrics.values() if len(label) else ():
            metric.update(output, label)

    def compute(self, phases: Phases) -> dict[str, float]:
        """Return the metrics over the rows of all workers, NaN if none has a label, and reset them."""
        is_empty = bool(self.metrics) and self._missing is not None and self._count_labels(phases) == 0
        results: dict[str, float] = {}
        for key, metric in self.metrics.items():
            name = name_metric(self.name, key)
            results[name] = math.nan if is_empty else to_number(name, metric_lists.compute(metric, self._world))
            metric.reset()
        return results

    def _count_labels(self, phases: Phases) -> float:
        return sum_over_workers(self._labels[None], self._world, phases)[0]


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


def sum_over_workers(values: Tensor, world: World, phases: Phases) -> list[float]:
    """Return the sums of some values (n,) over all workers; waiting for other workers is a phase of its own."""
    own: list[float] = values.tolist()  # a GPU computes it only now, which is not waiting for others
    if world.size == 1:
        return own
    with phases.waiting():
        return world.sum(values.clone()).tolist()


def _widen(output: Any) -> Any:
    """Return an output with its tensors in half precision as float32: in bfloat16, a sigmoid maps many logits to 1."""
    return tree_map_only(Tensor, lambda part: part.float() if part.dtype in _HALF_PRECISION else part, output)


def to_number(name: str, value: Any) -> float:
    """Return the value of a metric of the recipe. Raises TrainyardError if it is not one number."""
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
