"""One step of a training: the gradients of a global batch, and the optimizer's step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from trainyard.schemas.runs.phases import Phase
from trainyard.trainer.data.loader import LocalBatch, split_batch
from trainyard.trainer.data.randomness import set_seed
from trainyard.trainer.loop.evaluation import autocast, to_device
from trainyard.trainer.loop.training_state import TrainingState
from trainyard.trainer.model.losses import check_is_mean, explain_errors, find_shape_warnings
from trainyard.trainer.model.recipe import Batch
from trainyard.trainer.run.empty_batches import leave_no_trace
from trainyard.trainer.run.replicas import Replicas


class Stepper:
    """Takes the steps of a training.

    Args:
        state: The state that a step changes.
        wrapped: The network as the strategy has wrapped it.
        replicas: The replicas of the network.
    """

    def __init__(self, state: TrainingState, wrapped: nn.Module, replicas: Replicas) -> None:
        self._run, self._state, self._wrapped, self._replicas = state.run, state, wrapped, replicas
        self._device = self._run.world.device
        self._callable: nn.Module = torch.compile(wrapped) if self._run.options.compile else wrapped  # type: ignore[assignment]
        self._communicates_in_forward = self._run.strategy.sharded or any(
            isinstance(module, nn.SyncBatchNorm) for module in self._run.network.modules()
        )

    def begin_epoch(self) -> None:
        """Set the network to training mode."""
        self._callable.train()

    def take(self, batch: LocalBatch) -> None:
        """Take one optimizer step on a global batch, and add the losses of this worker's rows to those of the epoch.

        The loss is a mean over rows, or over labels by their weight, and the strategy averages over workers; so each
        micro-batch counts by its rows, or weights, x number of workers / those of the global batch.
        """
        run, updates = self._run, self._state.position.updates
        set_seed(hash((run.options.seed, updates, run.world.rank)), self._device)
        with run.phases.measure(Phase.COPY) if self._device.type == "cuda" else nullcontext():
            columns = to_device(batch.columns, self._device)
        parts = run.micro_batches
        if self._communicates_in_forward:
            parts = min(parts, math.ceil(batch.total / run.world.size))
        micro_batches = list(split_batch(columns, batch.rows, parts, self._communicates_in_forward))
        weights, totals = self._weigh(micro_batches, batch.total)
        for number, ((rows, part), own) in enumerate(zip(micro_batches, weights, strict=True), start=1):
            shares = [weight * run.world.size / total for weight, total in zip(own, totals, strict=True)]
            counts = nullcontext() if rows else leave_no_trace(self._state.network)
            with counts, run.strategy.micro_batch(last=number == len(micro_batches)):
                self._add_gradient(rows, part, own, shares)
        self._replicas.check_trained()
        with run.phases.measure(Phase.OPTIMIZER), run.strategy.optimizer_step():
            self._step_optimizer()
        self._state.optimizer.zero_grad()

    def _add_gradient(
        self, rows: int, part: Batch, weights: Sequence[float | Tensor], shares: Sequence[float | Tensor]
    ) -> None:
        """Add the gradient of a micro-batch to that of the step, and its losses to those of the epoch.

        Args:
            rows: How many rows it has; with 0 it has one that does not count.
            part: Its columns.
            weights: What the loss of each head counts in the epoch.
            shares: What it counts in the step.
        """
        state, phases = self._state, self._run.phases
        with phases.measure(Phase.FORWARD), autocast(self._device, self._run.options.precision):
            losses = self._compute_losses(part, self._callable if rows else self._wrapped)
        with phases.measure(Phase.BACKWARD):
            total = self._run.objective.sum_losses(losses, shares)
            state.scaler.scale(total).backward()  # type: ignore[no-untyped-call]
        if rows:
            for number, (loss, weight) in enumerate(zip(losses, weights, strict=True)):
                state.loss_sum[number] += loss.detach().double() * weight
                state.loss_weight[number] += weight

    def _step_optimizer(self) -> None:
        run, state = self._run, self._state
        if not (run.strategy.sharded or run.strategy.own_optimizer):  # random numbers change all replicas alike
            set_seed(hash((run.options.seed, state.position.updates)), self._device)
        if run.options.clip_norm:
            state.scaler.unscale_(state.optimizer)
            nn.utils.clip_grad_norm_(state.network.parameters(), run.options.clip_norm)
        state.scaler.step(state.optimizer)
        state.scaler.update()
        if state.schedule and run.recipe.schedule_by == "update":
            state.schedule.step()

    def _weigh(
        self, micro_batches: Sequence[tuple[int, Batch]], total: int
    ) -> tuple[list[list[float | Tensor]], list[float | Tensor]]:
        """Return what the loss of each head counts in this worker's micro-batches, and in the global batch.

        Args:
            micro_batches: The rows and the columns of each.
            total: The rows of the global batch.
        """
        run = self._run
        weights = [run.objective.weigh(rows, part) for rows, part in micro_batches]
        totals: list[float | Tensor] = [total for _ in run.objective.heads]
        own = {number: torch.stack(of_head).sum() for number, of_head in _transpose_tensors(weights)}
        if own:
            with run.phases.waiting() if run.world.size > 1 else nullcontext():
                sums = run.world.sum(torch.stack([*own.values()]))
            for number, weight in zip(own, sums.clamp(min=torch.finfo(sums.dtype).tiny), strict=True):
                totals[number] = weight
        return weights, totals

    def _compute_losses(self, columns: Batch, model: nn.Module) -> list[Tensor]:
        """Return the loss of each head, or that of the recipe's step."""
        run, recipe = self._run, self._run.recipe
        with explain_errors(self._state.network, run.unread_columns):
            if recipe.step:
                losses = [recipe.step(model, columns)]
            else:
                output = model(columns)
                for name, part in recipe.split_output(output).items():
                    run.warnings.update(find_shape_warnings(recipe.heads_by_name[name], part, columns))
                losses = run.objective.compute_losses(output, columns)
        for loss in losses:
            check_is_mean(loss)
        return losses


def _transpose_tensors(weights: Sequence[Sequence[float | Tensor]]) -> Iterator[tuple[int, list[Tensor]]]:
    """Yield the number of each head, and its weights in all micro-batches, if they are tensors."""
    for number, of_head in enumerate(zip(*weights, strict=True)):
        tensors = [weight for weight in of_head if isinstance(weight, Tensor)]
        if len(tensors) == len(of_head):
            yield number, tensors
